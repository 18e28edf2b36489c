// All memory of one decoder session, taken once: cache, inputs, logits, and a ready tensor for each length that a call can have.
//
// Past and present of a layer are the same memory, [1, Hkv, S, D] in both roles: the attention operator then writes new slots in place
// and copies nothing. A device that wants the cache in its own memory gets it there; the rest is copied at every call, being bound anew.
// Lengths change from call to call, and a tensor's shape cannot be changed; so the tensors of all lengths are made beforehand over the
// same bytes (200 bytes each) and a step only binds them. Internal to ort/.
#pragma once
#include <span>
#include <vector>

#include "backend/ort/decoder_io.h"
#include "base/mmap.h"

namespace slm::backend::ort {

// Where the caches of all layers lie in one buffer, in the order of DecoderIo::cache.
struct CachePlan {
  std::vector<size_t> offsets;
  size_t bytes = 0;
};
// Error: kLimit (more than any memory). Takes none.
Result<CachePlan> PlanCache(const DecoderIo& io, int context);

class Feeds {
 public:
  struct Sizes {
    int context = 0, chunk = 0, vocab = 0, logits_rows = 1;
    CachePlan cache;  // of `context`
  };
  // `session` must outlive the feeds. Errors: kLimit (memory), what the runtime says.
  static Result<Feeds> Create(const OrtApi& api, OrtSession* session, const DecoderIo& io, const Sizes& sizes);

  // Evaluates tokens into cache slots [first, first + n); the logits of the last token, or of all where the graph gives all, begin at row
  // `row` of logits(). Preconditions: 1 <= n <= chunk, first + n <= context, the rows exist. Allocates nothing outside the runtime.
  Status Run(std::span<const int32_t> tokens, int first, int row);

  // The tensor of that place in DecoderIo::cache, [Hkv][S][D].
  std::byte* cache(size_t i) const { return cache_.data() + cache_at_[i]; }

  const float* logits() const { return logits_.as<float>(); }
  int64_t other_bytes() const { return static_cast<int64_t>(logits_.size() + ids_.size() + mask_.size() + positions_.size()); }

 private:
  Feeds() = default;
  Status BindCache(const DecoderIo& io, const Sizes& sizes);
  Status MakeLengths(const DecoderIo& io, const Sizes& sizes);
  Result<Value> Tensor(void* data, size_t bytes, std::span<const int64_t> dims, ONNXTensorElementDataType type) const;
  // Tensors [1, n] for n = 1 … most over the bytes of `buffer`.
  Result<std::vector<Value>> Lengths(const Port& port, const Buffer& buffer, int most) const;

  const OrtApi* api_ = nullptr;
  OrtSession* session_ = nullptr;
  std::string ids_name_, mask_name_, positions_name_, logits_name_;
  ONNXTensorElementDataType ids_type_{}, positions_type_{};
  bool last_row_only_ = false;
  std::vector<size_t> cache_at_;
  Buffer cache_, logits_, ids_, mask_, positions_;
  MemoryInfo memory_;
  RunOptions run_options_;
  Allocator device_;  // of the cache where it lies in a device's memory; null: cache_
  std::vector<Value> cache_values_, ids_values_, mask_values_, positions_values_;
  std::vector<Value> logits_values_;  // last row only: one a row; else one a length, all from row 0
  Binding binding_;
};

}  // namespace slm::backend::ort
