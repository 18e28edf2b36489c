// THE seam between what is decided (decode) and what computes (cpu, fake; later ort, sim, hybrid): tokens in, logits out.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace slm::backend {

struct Capabilities {
  std::string device;   // "cpu"
  std::string backend;  // "cpu", "fake"
  std::string isa;      // kernel tier in use
  int n_threads = 1;
  int max_context = 0;                                             // S: slots of the KV cache, fixed at load
  int max_tokens = 0;                                              // tokens that one Forward takes at most (prefill chunk)
  int vocab_size = 0;                                              // V
  int64_t weights_bytes = 0, kv_bytes = 0, activations_bytes = 0;  // memory this back end holds
  int64_t bytes_per_token = 0;                                     // weight bytes one decode step reads
  int64_t ops_per_token = 0;                                       // multiplies and adds of one decode step's matmuls (2 per weight)
};

// Where an operator runs: one row a distinct (operator, kernel).
struct PlacementRow {
  std::string op;  // ONNX name, or the fused form
  int count = 0;   // nodes
  std::string device, backend, kernel;
  std::string reason;  // why here, or what was lost ("Q6_K requantized to 8 bit")
};

enum class LogitsOf : uint8_t { kLastToken, kAllTokens };

// Rows of logits, valid until the next call on the same back end.
struct Logits {
  const float* data = nullptr;  // [n_rows][stride] f32
  int n_rows = 0;
  int64_t stride = 0;  // values from row to row, >= V
  int vocab_size = 0;
  std::span<const float> Row(int i) const { return {data + i * stride, static_cast<size_t>(vocab_size)}; }
};

// One sequence. Not thread-safe: one call at a time. Nothing is allocated by Forward or Rewind when they succeed.
class Backend {
 public:
  virtual ~Backend() = default;
  // Evaluates tokens [T], 1 <= T <= max_tokens, into cache slots [used(), used() + T). kAllTokens: T rows, else one.
  // Errors: kLimit when the context has no room (both numbers named), kInvalidArgument for a token outside the vocabulary or
  // T out of range, kCorrupt when logits are NaN or infinite (the layer where it began is named).
  virtual Result<Logits> Forward(std::span<const int32_t> tokens, LogitsOf which) = 0;
  // Forgets slots from `position` on. Errors: kInvalidArgument when position > used() or < 0.
  virtual Status Rewind(int position) = 0;
  virtual int used() const = 0;
  virtual const Capabilities& capabilities() const = 0;
  virtual std::vector<PlacementRow> Placement() const = 0;
};

}  // namespace slm::backend
