// See inspect_report.h.
#include "inspect_report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu.h"
#include "fetch/digest.h"
#include "graph/graph.h"
#include "inspect_onnx.h"
#include "kv/kv.h"
#include "load_decoder.h"
#include "model/model.h"
#include "onnx/static_folder/static_folder.h"
#include "open_model.h"

namespace slm::cli {
namespace {

using model::LoadWhat;
using model::Model;
using nlohmann::ordered_json;

struct Opened {
  std::shared_ptr<model::Model> model;
  std::string reason;  // why it cannot be run; empty: it can
  std::shared_ptr<const importer::Decoder> onnx;
};

// As much of the file as can be trusted: all of it, or its tables when only the computation is missing.
Result<Opened> OpenForInspection(const std::string& path) {
  if (path.ends_with(".safetensors")) {
    SLM_ASSIGN_OR_RETURN(auto bare, model::LoadModel(path, LoadWhat::kContainer));
    return Opened{std::move(bare), "a safetensors file alone has no config", nullptr};
  }
  auto all = model::LoadModel(path);
  if (all.ok()) return Opened{all.Take(), "", nullptr};
  SLM_ASSIGN_OR_RETURN(auto container, model::LoadModel(path, LoadWhat::kContainer));
  if (container->tensors.empty()) {
    SLM_ASSIGN_OR_RETURN(auto vocabulary, model::LoadModel(path, LoadWhat::kTokenizerOnly));
    return Opened{std::move(vocabulary), "the file holds a vocabulary only", nullptr};
  }
  if (all.error().code() != Code::kUnsupported) return all.error();
  std::string reason = all.error().message();
  if (!all.error().hint().empty()) reason += " (" + all.error().hint() + ")";
  return Opened{std::move(container), std::move(reason), nullptr};
}

std::string MetadataOf(const Model& m, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    for (const auto& [name, value] : m.metadata)
      if (name == key) return value;
  return {};
}

ordered_json RopeJson(const model::RopeConfig& r) {
  const char* scaling = "none";
  switch (r.scaling) {
    case model::RopeScaling::kNone: break;
    case model::RopeScaling::kLinear: scaling = "linear"; break;
    case model::RopeScaling::kLlama3: scaling = "by frequency"; break;
    case model::RopeScaling::kLongRope: scaling = "longrope"; break;
  }
  if (!r.freq_factors.empty()) scaling = "factors in the file";
  return {{"theta", r.theta},   {"rotary_dim", r.rotary_dim}, {"pairs", r.interleaved ? "interleaved" : "halves"},
          {"scaling", scaling}, {"factor", r.factor},         {"attention_factor", r.attention_factor}};
}

ordered_json ConfigJson(const Model& m) {
  const model::ModelConfig& c = m.config;
  const auto ones = [](const std::vector<uint8_t>& v) { return std::count(v.begin(), v.end(), 1); };
  const auto local = ones(c.is_local);
  ordered_json j = {{"vocab_size", c.vocab_size}, {"d_model", c.d_model},   {"n_layers", c.n_layers}, {"n_heads", c.n_heads},
                    {"n_kv_heads", c.n_kv_heads}, {"head_dim", c.head_dim}, {"d_ff", c.d_ff},         {"max_context", c.max_context}};
  j["layers"] = {{"global", c.n_layers - local}, {"local", local}, {"sliding_window", c.sliding_window}, {"without_rope", ones(c.no_rope)}};
  const bool in_graph = m.format == "genai" || m.format == "onnx";  // which rotates by tables
  j["rope"] = in_graph ? ordered_json(nullptr) : RopeJson(c.rope);
  j["rope_local"] = local > 0 && !in_graph ? RopeJson(c.rope_local) : ordered_json(nullptr);
  j["tied_head"] = c.tied_head;
  j["qkv_bias"] = c.qkv_bias;
  j["qk_norm"] = c.qk_norm;
  return j;
}

// The arena of one prefill chunk plus a row of logits, from the graph that `slm run` would execute; null when it cannot be built.
ordered_json ActivationBytes(const Opened& o, int context) {
  const std::shared_ptr<model::Model>& m = o.model;
  auto built = GraphOf({m, o.onnx}, context);
  if (!built.ok()) return nullptr;
  graph::Graph g = built.Take();
  if (!graph::RunPasses(g, {}).ok()) return nullptr;
  graph::MemoryPlanOptions options;
  options.tokens = std::min(context, backend::CpuOptions{}.chunk);
  for (const graph::Node& n : g.nodes)  // of the logits only one row is ever kept, which is added below
    for (const graph::ValueId v : n.outputs)
      if (n.layer < 0 && v != graph::kNoValue && !g.values[static_cast<size_t>(v)].shape.empty() &&
          g.values[static_cast<size_t>(v)].shape.back() == m->config.vocab_size)
        options.unplanned.push_back(v);
  const auto plan = graph::PlanMemory(g, options);
  if (!plan.ok()) return nullptr;
  return plan.value().arena_bytes + int64_t{4} * m->config.vocab_size;
}

int64_t Int8CacheBytes(const model::ModelConfig& c, int context) {
  const kv::Tile tile = kv::TileOf(DType::kI8, c.head_dim);
  const int64_t tiles = (context + tile.slots - 1) / tile.slots;
  return int64_t{c.n_layers} * c.n_kv_heads * tiles * static_cast<int64_t>(tile.key_bytes + tile.value_bytes);
}

ordered_json MemoryJson(const Opened& o, uint64_t weights_bytes, int context) {
  if (!o.reason.empty())
    return {{"context", nullptr}, {"weights_bytes", weights_bytes}, {"kv_bytes", nullptr}, {"activations_bytes", nullptr}};
  const model::ModelConfig& c = o.model->config;
  const int64_t values = int64_t{2} * c.n_layers * c.n_kv_heads * c.head_dim * context;
  return {{"context", context},
          {"weights_bytes", weights_bytes},
          {"kv_bytes", 2 * values},
          {"kv_bytes_f32", 4 * values},
          {"kv_bytes_int8", Int8CacheBytes(c, context)},
          {"activations_bytes", ActivationBytes(o, context)}};
}

struct TypeSum {
  int64_t tensors = 0, values = 0;
  uint64_t bytes = 0;
};

ordered_json TypesJson(const Model& m) {
  std::map<std::string_view, TypeSum> sums;
  for (const model::Tensor& t : m.tensors) {
    TypeSum& s = sums[model::TypeName(t)];
    ++s.tensors;
    s.values += t.n_values();
    s.bytes += t.stored_bytes();
  }
  std::vector<std::pair<std::string_view, TypeSum>> order(sums.begin(), sums.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  ordered_json list = ordered_json::array();
  for (const auto& [name, s] : order) list.push_back({{"dtype", name}, {"tensors", s.tensors}, {"n_params", s.values}, {"bytes", s.bytes}});
  return list;
}

ordered_json TensorsJson(const Model& m) {
  ordered_json list = ordered_json::array();
  for (const model::Tensor& t : m.tensors)
    list.push_back({{"name", t.name}, {"dtype", model::TypeName(t)}, {"shape", t.dims}, {"bytes", t.stored_bytes()}});
  return list;
}

Result<int> PlannedContext(const Opened& o, int asked) {
  if (!o.reason.empty()) return 0;
  const int own = o.model->config.max_context;
  SLM_RETURN_IF_ERROR(CheckContext(asked, own));
  return asked > 0 ? asked : std::min(own, kDefaultContext);
}

}  // namespace

ordered_json TokenizerJson(const Model& m) {
  const model::TokenizerSource& t = m.tokenizer;
  if (t.kind.empty()) return nullptr;
  ordered_json j = {{"kind", t.kind}};
  if (t.kind == "gguf") {
    j["model"] = t.ggml_model;
    j["pre"] = t.ggml_pre;
    j["n_tokens"] = t.tokens.size();
    j["n_merges"] = t.merges.size();
  } else {
    ordered_json files = ordered_json::array();
    const std::pair<const char*, const std::string*> all[] = {{"tokenizer.json", &t.tokenizer_json},
                                                              {"tokenizer.model", &t.spm_model},
                                                              {"vocab.json", &t.vocab_json},
                                                              {"merges.txt", &t.merges_txt}};
    for (const auto& [name, text] : all)
      if (!text->empty()) files.push_back(name);
    j["files"] = files;
  }
  j["bos_ids"] = m.config.bos_ids;
  j["eos_ids"] = m.config.eos_ids;
  return j;
}

ordered_json TemplateJson(const model::TokenizerSource& t) {
  if (t.chat_template.empty()) return nullptr;
  ordered_json named = ordered_json::array();
  for (const auto& [name, text] : t.named_templates) named.push_back(name);
  return {{"sha256", Sha256Of(t.chat_template)}, {"bytes", t.chat_template.size()}, {"named", named}};
}

namespace {

// The files' own tables, and what running them would take where they are a decoder that this build runs.
Result<ordered_json> InspectOnnxModel(const std::string& path, int context) {
  SLM_ASSIGN_OR_RETURN(ordered_json j, InspectOnnx(path));
  auto imported = importer::Import(path);
  if (!imported.ok()) {
    j["reason"] = imported.error().message();
    return j;
  }
  const Opened o{imported.value().model, "", imported.value().decoder};
  SLM_ASSIGN_OR_RETURN(const int planned, PlannedContext(o, context));
  j["runnable"] = true;
  j["reason"] = nullptr;
  j["config"] = ConfigJson(*o.model);
  j["memory"] = MemoryJson(o, j["memory"]["weights_bytes"], planned);
  if (o.model->format == "onnx") j["tokenizer"] = TokenizerJson(*o.model), j["chat_template"] = TemplateJson(o.model->tokenizer);
  return j;
}

}  // namespace

Result<ordered_json> InspectModel(const std::string& path, int context) {
  if (onnx::IsStaticFolder(path))
    return Error(Code::kUnsupported, path + ": a folder of static graphs, which its manifest.json describes",
                 "name one of its .onnx files; slm check takes the folder");
  if (importer::IsOnnxModel(path)) return InspectOnnxModel(path, context);
  SLM_ASSIGN_OR_RETURN(const Opened o, OpenForInspection(path));
  const Model& m = *o.model;
  SLM_ASSIGN_OR_RETURN(const int planned, PlannedContext(o, context));
  int64_t n_params = 0;
  uint64_t bytes = 0;
  for (const model::Tensor& t : m.tensors) {
    n_params += t.n_values();
    bytes += t.stored_bytes();
  }
  const auto or_null = [](const std::string& s) { return s.empty() ? ordered_json(nullptr) : ordered_json(s); };
  ordered_json j;
  j["format"] = m.format;
  j["arch"] = or_null(m.config.architecture.empty() ? MetadataOf(m, {"general.architecture", "model_type"}) : m.config.architecture);
  j["name"] = or_null(m.config.name.empty() ? MetadataOf(m, {"general.name"}) : m.config.name);
  j["path"] = m.path;
  j["file_bytes"] = m.file_bytes;
  j["runnable"] = o.reason.empty();
  j["reason"] = or_null(o.reason);
  j["n_params"] = n_params;
  j["bpw"] = n_params > 0 ? ordered_json(8.0 * static_cast<double>(bytes) / static_cast<double>(n_params)) : ordered_json(nullptr);
  j["config"] = o.reason.empty() ? ConfigJson(m) : ordered_json(nullptr);
  j["tokenizer"] = TokenizerJson(m);
  j["chat_template"] = TemplateJson(m.tokenizer);
  j["memory"] = MemoryJson(o, bytes, planned);
  j["types"] = TypesJson(m);
  ordered_json metadata = ordered_json::object();
  for (const auto& [key, value] : m.metadata) metadata[key] = value;
  j["metadata"] = metadata;
  j["tensors"] = TensorsJson(m);
  return j;
}

}  // namespace slm::cli
