#include "export_qdq_manifest.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fetch/digest.h"
#include "quantize_json.h"
#include "version.h"

namespace slm::cli {
namespace {
using exporter::StaticInput;
using nlohmann::ordered_json;

constexpr size_t kPart = size_t{8} << 20;

ordered_json InputJson(const StaticInput& input, const exporter::StaticModel& built) {
  ordered_json j = {{"name", input.name}};
  switch (input.kind) {
    case StaticInput::Kind::kTokenRows: j["rows"] = "token"; break;
    case StaticInput::Kind::kPositionRows: j["rows"] = "position"; break;
    case StaticInput::Kind::kMask:
      j["rows"] = "mask";
      j["repeats"] = built.mask_repeats;
      j["window"] = input.window;
      for (const auto& [key, value] : {std::pair{"allowed", input.allowed}, {"masked", input.masked}})
        j[key] = built.input_dtype == "F32" ? ordered_json(value) : ordered_json(static_cast<int64_t>(value));
      return j;
  }
  j["table"] = input.table;
  return j;
}

}  // namespace

Result<FileDigests> DigestsOf(const model::Model& m, const Io& io) {
  FileDigests out;
  std::vector<std::string> paths;
  if (m.format == "hf") paths.push_back(m.path + "/config.json");
  for (const MappedFile& f : m.files) {
    Digest digest(DigestKind::kSha256);
    const auto bytes = f.bytes();
    for (size_t at = 0; at < bytes.size(); at += kPart) {
      if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
      const auto part = bytes.subspan(at, std::min(kPart, bytes.size() - at));
      digest.Add({reinterpret_cast<const char*>(part.data()), part.size()});
    }
    out.emplace_back("weights", digest.Hex());
  }
  for (const std::string& path : paths) {
    SLM_ASSIGN_OR_RETURN(std::string sum, Sha256OfFile(path));
    out.emplace_back(std::filesystem::path(path).filename().string(), std::move(sum));
  }
  return out;
}

ordered_json ManifestOf(const QdqManifest& m, const model::Model& model, const QdqRequest& r, const exporter::StaticModel& built) {
  const model::ModelConfig& c = model.config;
  ordered_json source = ordered_json::array();
  for (const auto& [file, sha256] : m.source) source.push_back({{"file", file}, {"sha256", sha256}});
  ordered_json files = ordered_json::object();
  for (const auto& [file, sha256] : m.files) files[file] = sha256;
  ordered_json inputs = ordered_json::array();
  for (const StaticInput& input : built.inputs) inputs.push_back(InputJson(input, built));
  const bool has_prefix = !built.prefix_tokens.empty();
  ordered_json cache = {{"layers", c.n_layers},
                        {"dtype", built.cache_dtype},
                        {"key_inputs", "past_key.N"},
                        {"value_inputs", "past_value.N"},
                        {"key_outputs", "key.N"},
                        {"value_outputs", "value.N"},
                        {"key_shape", {1, c.n_kv_heads, c.head_dim, m.context}},
                        {"value_shape", {1, c.n_kv_heads, m.context, c.head_dim}}};
  if (!built.key_scales.empty()) {
    cache["key_scales"] = built.key_scales;
    cache["value_scales"] = built.value_scales;
  }
  ordered_json prefix = {{"tokens", built.prefix_tokens}};
  if (has_prefix) {
    prefix["keys"] = "prefix_key.N";
    prefix["values"] = "prefix_value.N";
    prefix["logits"] = exporter::kPrefixLogits;
  }
  return {{"format", "slmkit-static"},
          {"version", 1},
          {"producer", "slmkit " SLM_VERSION},
          {"source", std::move(source)},
          {"recipe", QdqRecipeJson(r)},
          {"calibration", m.text ? TextJson(*m.text) : ordered_json(nullptr)},
          {"model",
           {{"architecture", c.architecture},
            {"vocab_size", c.vocab_size},
            {"d_model", c.d_model},
            {"layers", c.n_layers},
            {"query_heads", c.n_heads},
            {"kv_heads", c.n_kv_heads},
            {"head_dim", c.head_dim},
            {"bos_token_ids", built.prefix_tokens.empty() ? c.bos_ids : built.prefix_tokens},
            {"eos_token_ids", c.eos_ids}}},
          {"context", m.context},
          {"graphs", {{{"file", exporter::kPrefillFile}, {"tokens", r.chunk}}, {{"file", exporter::kDecodeFile}, {"tokens", r.decode}}}},
          {"files", std::move(files)},
          {"weights_file", kWeightsFile},
          {"host_file", kHostFile},
          {"inputs", std::move(inputs)},
          {"input_dtype", built.input_dtype},
          {"logits", {{"name", built.prefill.graph.outputs[0].name}, {"dtype", "F32"}}},
          {"cache", std::move(cache)},
          {"prefix", std::move(prefix)},
          {"notes", m.notes}};
}

}  // namespace slm::cli
