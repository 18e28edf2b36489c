// A folder of ONNX graphs of fixed shapes, as `slm export --to qdq` writes it: manifest.json says how a host feeds them (docs/npu.md),
// host.safetensors holds what the host looks up.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace slm::onnx {

// As the file spells them; what runs them (backend/ort/static.h) has types of its own, since a back end knows no file format.
enum class StaticElement : uint8_t { kF32, kU16, kI16 };  // of inputs, cache and tables
constexpr uint64_t BytesOf(StaticElement e) { return e == StaticElement::kF32 ? 4 : 2; }

struct StaticGraphFile {
  std::string name;  // plain name in the folder
  int tokens = 1;    // of one run, T
};

// An input that is not of the cache.
struct StaticGraphInput {
  enum class Rows : uint8_t { kToken, kPosition, kMask };
  std::string name;
  Rows rows = Rows::kToken;
  std::string table;               // of tokens and positions: a tensor of the host file
  int64_t repeats = 1;             // of a mask: its rows stand there so often
  int64_t window = 0;              // of a mask: tokens that a query sees, itself included; 0: all
  double allowed = 0, masked = 0;  // of a mask: values of its elements, which the type holds
};

struct StaticManifest {
  int context = 0;  // S
  std::string architecture;
  int vocab_size = 0, d_model = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  std::vector<int32_t> bos_ids, eos_ids;  // eos: every id that ends a turn
  std::string weights;                    // of the recipe
  std::vector<StaticGraphFile> graphs;    // of most tokens first; the last takes one or few
  std::vector<StaticGraphInput> inputs;
  StaticElement input_type = StaticElement::kF32, cache_type = StaticElement::kF32;
  // Value of a cache element: scale * element, by layer. Empty when the file does not say, and for f32.
  std::vector<float> key_scales, value_scales;
  std::string logits;                                       // the output's name
  std::string host_file;                                    // plain name
  std::vector<std::pair<std::string, std::string>> sha256;  // of each file, by plain name, in hexadecimal
  std::vector<int32_t> prefix_tokens;                       // that every sequence begins with; no graph sees them
  std::string prefix_logits;                                // a tensor of the host file [prefix tokens, V] f32; empty: not there
};

// Errors: kCorrupt (not JSON, a key that is missing or of a wrong type, a number beyond any model's size), kUnsupported (another format or
// version).
Result<StaticManifest> ParseStaticManifest(std::string_view text);

struct StaticFolder {
  std::string path;
  StaticManifest manifest;
  std::shared_ptr<const model::Model> host;  // tables, mapped; their types and shapes fit the manifest
  const model::Tensor& Table(const std::string& name) const { return *host->FindName(name); }
};
inline std::string PrefixKeyName(int layer) { return "prefix_key." + std::to_string(layer); }
inline std::string PrefixValueName(int layer) { return "prefix_value." + std::to_string(layer); }

// Has `path` a manifest.json, and no config.json of another kind of model?
bool IsStaticFolder(const std::string& path);

// Sums are not compared. Errors: those of the manifest, kNotFound, kIo, kCorrupt (a file outside the folder, a table that is missing or of
// another shape or type).
Result<StaticFolder> ReadStaticFolder(const std::string& path);

}  // namespace slm::onnx
