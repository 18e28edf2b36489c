// A decoder as two ONNX graphs of fixed shapes, as compilers of NPUs want them: prefill for a chunk of tokens, decode for one or a few.
// Batch 1, a KV cache of fixed length that the host owns, every activation quantized to 16 bits (QDQ) or none. A door.
//
// What the graphs look like, and why, is in docs/npu.md. Ranges of activations and codes of weights are the caller's: this room calibrates
// nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "model/calibrated.h"
#include "onnx/onnx.h"

namespace slm::exporter {

// What calibration found.
struct Calibrated {
  std::map<const model::Tensor*, model::CodedMatrix> matrices;  // every matrix that the graph multiplies by
  // By node of the plain graph: what its result spans, tokens of the prefix left out; "<attention>.scores": products of queries and keys,
  // scaled.
  std::map<std::string, model::ValueRange> ranges;
  // Tokens that every sequence begins with: their keys and values are part of the folder, and no graph sees them. The first token of a
  // sequence can be a thousand times the others (arXiv 2402.17762), which no range of 16 bits holds.
  std::vector<int32_t> prefix_tokens;
  std::vector<model::PrefixCache> prefix;  // by layer, when there are prefix tokens
  std::vector<float> prefix_logits;        // [prefix tokens][V]: what follows them
};

// Keys are rotated as [T, D] of a head and then transposed, or with their columns first, transposed before. Compilers differ: OpenVINO's
// for NPU 3720 fails at the first form with many tokens ("UnrollPermuteDMA Pass failed"), Qualcomm's provider leaves nodes of the second to
// the CPU.
enum class KeyRotation : uint8_t { kRows, kColumns };

enum class Activations : uint8_t { kFloat, kUint16 };

struct StaticOptions {
  int chunk = 64;      // tokens of the prefill graph
  int decode = 1;      // of the decode graph; more than one for compilers that fail at one: the rest is filled and not read
  int context = 2048;  // S: slots of the cache; the graph's rotary tables have as many rows
  Activations activations = Activations::kUint16;
  KeyRotation keys = KeyRotation::kRows;
  float range_margin = 1.5f;  // ranges are this much wider than calibration found them
};

inline constexpr const char* kPrefixLogits = "prefix_logits";  // name of a host tensor [prefix tokens, V] f32
inline constexpr const char *kPrefillFile = "prefill.onnx", *kDecodeFile = "decode.onnx";

// Options that the graphs want of Qualcomm's provider.
struct QnnOption {
  const char *key, *value;
};
inline constexpr QnnOption kQnnOptions[] = {
    {"offload_graph_io_quantization", "0"},           // inputs and outputs are integers already: what is around them belongs on the device
    {"enable_block_quant_weight_optimization", "1"},  // blocks of 4 bits stay 4 bits
};

// A table or constant for the host, as a tensor of a safetensors file.
struct HostTensor {
  std::string name, dtype;  // "U16", "I16" or "F32"
  std::vector<int64_t> dims;
  std::function<Status(const std::function<Status(std::span<const std::byte>)>& sink)> write;
  uint64_t bytes = 0;
};

// How a host feeds a graph input that is not of the cache.
struct StaticInput {
  enum class Kind : uint8_t {
    kTokenRows,     // rows of a host tensor by token
    kPositionRows,  // rows of a host tensor by position
    kMask,          // `allowed` or `masked` by query and slot
  };
  std::string name;
  Kind kind = Kind::kTokenRows;
  std::string table;               // host tensor; of kMask empty
  int64_t window = 0;              // of kMask: tokens that a query sees, itself included; 0: all
  double allowed = 0, masked = 0;  // of kMask: as elements of the input
};

struct StaticModel {
  onnx::Model prefill, decode;  // of the same large initializers in the same order: one file of weights serves both
  std::vector<StaticInput> inputs;
  std::vector<HostTensor> host;
  std::string cache_dtype, input_dtype;         // safetensors' names
  int64_t mask_repeats = 1;                     // queries of a mask stand there so often, one head of a group after another
  std::vector<int32_t> prefix_tokens;           // every sequence begins with them; their cache and logits are among the host tensors
  std::vector<float> key_scales, value_scales;  // of the cache by layer, when it holds whole numbers: value = scale * number
};

// `g`: the plain graph, no passes; it and its model outlive the result's host tensors. `calibrated` is not read with kFloat. Errors:
// kUnsupported naming a node without a form, kInvalidArgument (calls that the context does not hold, a range or matrix that is missing).
Result<StaticModel> BuildStaticModel(const graph::Graph& g, const StaticOptions& options, const Calibrated& calibrated);

// What a folder of the two graphs needs besides to be a decoder pipeline of ONNX Runtime GenAI.
struct PipelineFacts {
  int context = 0, chunk = 0;
  int pad_token = 0;      // fills a prompt's last chunk: GenAI takes the first one it meets for the prompt's end
  std::string host_file;  // the safetensors file with the host tensors, and where each begins in it
  std::map<std::string, uint64_t> offsets;
};
struct GenAiPipeline {
  onnx::Model host;    // kPipelineHost: rows of the tables, the mask, and the cache with the last call's entries in their slots
  onnx::Model logits;  // kPipelineLogits: what follows the prefix alone; without nodes when there is no prefix
  std::map<std::string, onnx::TensorPlace> places;  // of initializers of both
  std::string config;                               // genai_config.json
};
inline constexpr const char *kPipelineHost = "genai_host.onnx", *kPipelineLogits = "genai_logits.onnx";

// `built` has a decode graph of one token. Pure. Source: onnxruntime-genai's src/config.h and src/models/decoder_only_pipeline.cpp.
GenAiPipeline BuildGenAiPipeline(const StaticModel& built, const model::Model& m, const PipelineFacts& facts);

}  // namespace slm::exporter
