// One static graph with its session and its bound memory. Internal to ort/.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/ort/session.h"
#include "backend/ort/static.h"
#include "base/mmap.h"

namespace slm::backend::ort {

constexpr int64_t BytesOf(StaticType t) { return t == StaticType::kF32 ? 4 : 2; }

// Keys [Hkv, D, S] and values [Hkv, S, D] of every layer in one piece of memory.
class StaticCache {
 public:
  // Bytes that it will take, or kLimit when no memory holds them.
  static Result<int64_t> BytesFor(const StaticDecoder& d);
  static Result<StaticCache> Create(const StaticDecoder& d);
  std::byte* Key(int layer) const { return buffer_.data() + static_cast<size_t>(2 * layer) * stride_; }
  std::byte* Value(int layer) const { return Key(layer) + stride_; }
  int64_t part_bytes() const { return part_bytes_; }  // of one layer's keys, or values
  // Slots as f32 [Hkv][n][D] and back, value = scale * element; of f32 elements the scale is 1.
  struct Scales {
    float key = 1, value = 1;
  };
  void Read(int layer, int first, int n, const Scales& scales, float* keys, float* values) const;
  void Write(int layer, int first, int n, const Scales& scales, const float* keys, const float* values) const;
  // n new slots from `first` on: keys [Hkv, D, n of stride T], values [Hkv, T, D] of which n tokens count.
  void Store(int layer, int first, int n, int stride, const std::byte* keys, const std::byte* values) const;

 private:
  Buffer buffer_;
  StaticType type_ = StaticType::kF32;
  size_t stride_ = 0;
  int64_t part_bytes_ = 0, heads_ = 0, width_ = 0, slots_ = 0, element_ = 0;
};

class StaticSession {
 public:
  // The spans and the cache outlive it. Errors: kUnsupported naming the port, what the runtime says.
  static Result<StaticSession> Create(OpenSession session, const StaticDecoder& d, const StaticGraph& graph, const StaticCache& cache);

  // Evaluates 1 <= n <= T tokens into slots [first, first + n). Preconditions: first + n <= S, tokens of the vocabulary. Allocates nothing
  // outside the runtime.
  Status Run(std::span<const int32_t> tokens, int first, const StaticCache& cache);

  const float* logits() const { return logits_.as<float>(); }  // [T][V]
  int tokens() const { return tokens_; }
  const OpenSession& session() const { return session_; }
  int64_t bytes() const;  // of inputs, logits and new entries

 private:
  struct Feed {
    const StaticInput* input = nullptr;
    Buffer buffer;
  };
  StaticSession() = default;
  Status BindInputs(const StaticDecoder& d);
  Status BindOutputs(const StaticDecoder& d);
  Status BindCache(const StaticDecoder& d, const StaticCache& cache);
  enum class Way : uint8_t { kIn, kOut };
  struct Bound {
    Way way;
    const std::string& name;
    ONNXTensorElementDataType type;
    std::span<const int64_t> dims;
    std::byte* data;
    int64_t bytes;
  };
  Status Bind(const Bound& b);
  void Fill(const Feed& feed, std::span<const int32_t> tokens, int first) const;

  OpenSession session_;
  int tokens_ = 1, slots_ = 0, layers_ = 0;
  StaticType input_type_ = StaticType::kF32;
  MemoryInfo memory_;
  RunOptions run_options_;
  std::vector<Feed> feeds_;
  Buffer logits_, entries_;
  std::vector<const std::byte*> new_keys_, new_values_;  // by layer, in entries_
  std::vector<Value> values_;                            // everything that is bound
  Binding binding_;
};

}  // namespace slm::backend::ort
