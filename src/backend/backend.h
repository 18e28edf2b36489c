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

// The KV cache of a back end as another one takes it over. Canonical layout: of n slots of a layer, keys and values [Hkv][n][D] f32, keys
// rotated, a rotated pair of a key being its values (i, i + R / 2), as Hugging Face's models have it.
struct KvShape {
  int n_layers = 0, n_kv_heads = 0, head_dim = 0;
  bool operator==(const KvShape&) const = default;
};
class KvPort {
 public:
  virtual ~KvPort() = default;
  virtual KvShape shape() const = 0;
  // Slots [first, first + n) of a layer; Read of those in use, Write within the context. Not while Forward runs.
  virtual void Read(int layer, int first, int n, float* keys, float* values) const = 0;
  virtual void Write(int layer, int first, int n, const float* keys, const float* values) = 0;
  // Slots [0, position) were written and count as used. Errors: kLimit.
  virtual Status Take(int position) = 0;
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
  // Null when the cache cannot be handed over or taken: a type or order of values without a canonical form.
  virtual KvPort* kv_port() { return nullptr; }
};

}  // namespace slm::backend
