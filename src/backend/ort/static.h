// ONNX graphs of fixed shapes as one back end: a prefill graph for a chunk of tokens and a decode graph for one (or few), around one KV
// cache that the host owns. A door.
//
// Both sessions read the same cache memory; a call's new keys and values come out of a graph as small tensors and are put into their
// slots. No shape changes, so nothing is compiled again, whatever the prompt's length. What the folder's files say is the caller's
// business, as with ort.h.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ort/ort.h"

namespace slm::backend::ort {

enum class StaticType : uint8_t { kF32, kU16, kI16 };

// Rows of `row_bytes` bytes that the host copies.
struct StaticTable {
  std::span<const std::byte> bytes;
  int64_t row_bytes = 0;
  int64_t rows() const { return static_cast<int64_t>(bytes.size()) / row_bytes; }
};

struct StaticInput {
  enum class Rows : uint8_t {
    kToken,     // [1, T, E]: rows of the table by token
    kPosition,  // [1, 1, T, R]: by position
    kMask,      // [1, 1, repeats * T, S + T]: `allowed` or `masked`; S slots of the cache, then the tokens of the call
  };
  std::string name;
  Rows rows = Rows::kToken;
  StaticTable table;
  int64_t repeats = 1, window = 0;  // of a mask; window 0: a query sees all
  double allowed = 0, masked = 0;
};

struct StaticGraph {
  std::string path;  // of the ONNX file
  int tokens = 1;    // T of a run
  Choice choice;     // of devices for this graph
};

struct StaticDecoder {
  std::vector<StaticGraph> graphs;  // one at least
  int context = 0;                  // S: slots of the cache
  int n_layers = 0, n_kv_heads = 0, head_dim = 0, vocab_size = 0;
  StaticType input_type = StaticType::kF32, cache_type = StaticType::kF32;
  std::vector<StaticInput> inputs;
  std::string logits = "logits";  // [1, T, V] f32
  std::string past_key = "past_key.%d", past_value = "past_value.%d", key = "key.%d", value = "value.%d";
  // Tokens that every sequence begins with, which no graph sees: their keys [Hkv, D, T] and values [Hkv, T, D] of each layer as the cache
  // holds them, and their logits [T, V] (empty: not known), T of them.
  std::vector<int32_t> prefix_tokens;
  std::vector<std::span<const std::byte>> prefix_keys, prefix_values;
  std::vector<float> prefix_logits;
  // Of whole numbers in the cache: value = scale * number, by layer; empty: the cache is not handed to other back ends. Keys lie in halves.
  std::vector<float> key_scales, value_scales;
  std::shared_ptr<const void> holds;                                  // what the spans point into; kept by the back end
  int64_t weights_bytes = 0, bytes_per_token = 0, ops_per_token = 0;  // as in Capabilities
};

// Opens a session a graph, takes all memory and runs each once. Of `options` the choice is not
// read; the context is at most the decoder's, the chunk that of the largest graph. Errors: kUnsupported (inputs, outputs or shapes that are
// not those of the description), kLimit (memory, Choice::rest), what the runtime says. Forward also gives kInvalidArgument for a sequence
// that begins with other tokens than the prefix, kUnsupported where the prefix's logits are wanted and not known.
Result<OrtBackend> CreateStaticBackend(const std::shared_ptr<Runtime>& runtime, const StaticDecoder& decoder, const OrtOptions& options);

}  // namespace slm::backend::ort
