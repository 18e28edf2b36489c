// See inspect_onnx.h.
#include "inspect_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "importer/importer.h"
#include "inspect_report.h"
#include "model/model.h"
#include "onnx/genai/genai.h"
#include "onnx/onnx.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

std::string TypeText(const onnx::ValueType& t) {
  using Kind = onnx::ValueType::Kind;
  const auto inner = [&] { return t.inner.empty() ? std::string("?") : TypeText(t.inner[0]); };
  switch (t.kind) {
    case Kind::kTensor: return std::string(onnx::Info(t.element).name);
    case Kind::kSparseTensor: return "sparse " + std::string(onnx::Info(t.element).name);
    case Kind::kSequence: return "sequence of " + inner();
    case Kind::kOptional: return "optional " + inner();
    case Kind::kMap: return "map from " + std::string(onnx::Info(t.element).name) + " to " + inner();
    case Kind::kOpaque: return "opaque";
    case Kind::kNone: break;
  }
  return "unknown";
}

ordered_json ValuesJson(const std::vector<onnx::ValueInfo>& values) {
  ordered_json list = ordered_json::array();
  for (const onnx::ValueInfo& v : values) {
    ordered_json shape = nullptr;  // of unknown rank
    if (v.type.has_shape) {
      shape = ordered_json::array();
      for (const onnx::Dim& d : v.type.shape) {
        if (d.value >= 0) shape.push_back(d.value);
        else shape.push_back(d.symbol.empty() ? "?" : d.symbol);
      }
    }
    list.push_back({{"name", v.name}, {"type", TypeText(v.type)}, {"shape", shape}});
  }
  return list;
}

using OpCounts = std::map<std::pair<std::string, std::string>, int64_t>;  // (domain, operator)

void Count(const std::vector<onnx::Node>& nodes, OpCounts& counts) {
  for (const onnx::Node& n : nodes) {
    ++counts[{n.domain, n.op_type}];
    for (const onnx::Attribute& a : n.attributes)
      for (const onnx::Graph& g : a.graphs) Count(g.nodes, counts);
  }
}

ordered_json OperatorsJson(const onnx::Model& m) {
  OpCounts counts;
  Count(m.graph.nodes, counts);
  std::vector<std::pair<std::pair<std::string, std::string>, int64_t>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  ordered_json list = ordered_json::array();
  for (const auto& [name, n] : order) list.push_back({{"op", name.second}, {"domain", name.first}, {"count", n}});
  return list;
}

ordered_json GraphJson(const onnx::Model& m, const std::string& role) {
  ordered_json opsets = ordered_json::array(), functions = ordered_json::array(), external = ordered_json::array();
  for (const onnx::Opset& o : m.opsets) opsets.push_back({{"domain", o.domain}, {"version", o.version}});
  for (const onnx::Function& f : m.functions) functions.push_back({{"name", f.name}, {"domain", f.domain}, {"nodes", f.nodes.size()}});
  for (const onnx::ExternalFile& f : m.external_files) external.push_back({{"name", f.name}, {"bytes", f.bytes}});
  return {{"role", role.empty() ? ordered_json(nullptr) : ordered_json(role)},
          {"file", std::filesystem::path(m.path).filename().string()},
          {"name", m.graph.name},
          {"ir_version", m.ir_version},
          {"producer", m.producer_name},
          {"producer_version", m.producer_version},
          {"model_version", m.model_version},
          {"opsets", opsets},
          {"inputs", ValuesJson(m.graph.inputs)},
          {"outputs", ValuesJson(m.graph.outputs)},
          {"nodes", m.graph.nodes.size()},
          {"operators", OperatorsJson(m)},
          {"functions", functions},
          {"external_files", external}};
}

int64_t IntOf(const onnx::Node& n, const char* name, int64_t otherwise) {
  const onnx::Attribute* a = n.Find(name);
  return a && a->kind == onnx::Attribute::Kind::kInt ? a->ints[0] : otherwise;
}

// Parameters that initializers stand for where that is not their number of elements: codes of several weights in a byte, and the
// scales and zero points that belong to them (no parameters of their own).
std::unordered_map<std::string, int64_t> PackedParameters(const onnx::Graph& g) {
  std::unordered_map<std::string, int64_t> bytes, n_params;
  for (const onnx::Tensor& t : g.initializers) bytes[t.name] = static_cast<int64_t>(t.data.size());
  const auto set = [&](const onnx::Node& n, size_t codes, std::initializer_list<size_t> others) {
    const int64_t bits = IntOf(n, "bits", 4);
    if (n.inputs.size() <= codes || bits < 1 || bits > 8 || !bytes.contains(n.inputs[codes])) return;
    const int64_t most = bytes[n.inputs[codes]] * 8 / bits, rows = IntOf(n, "N", 0), columns = IntOf(n, "K", 0);
    const bool stated = rows > 0 && columns > 0 && rows <= most / columns;  // the last block of a row may be padded
    n_params[n.inputs[codes]] = stated ? rows * columns : most;
    for (const size_t i : others)
      if (i < n.inputs.size()) n_params[n.inputs[i]] = 0;
  };
  for (const onnx::Node& n : g.nodes) {
    if (n.domain != "com.microsoft") continue;
    if (n.op_type == "MatMulNBits") set(n, 1, {2, 3});
    if (n.op_type == "GatherBlockQuantized") set(n, 0, {2, 3});
  }
  return n_params;
}

struct TypeSum {
  int64_t tensors = 0, values = 0;
  uint64_t bytes = 0;
};

struct Totals {
  int64_t n_params = 0;
  uint64_t bytes = 0, file_bytes = 0;
  std::map<std::string_view, TypeSum> types;
  std::vector<std::string> seen;  // external files, which several graphs may share
  ordered_json tensors = ordered_json::array(), graphs = ordered_json::array();
};

void Add(const onnx::Model& m, const std::string& role, Totals& totals) {
  const auto packed = PackedParameters(m.graph);
  const std::string file = std::filesystem::path(m.path).filename().string();
  for (const onnx::Tensor& t : m.graph.initializers) {
    const auto at = packed.find(t.name);
    const int64_t values = at != packed.end() ? at->second : t.n_values();
    TypeSum& s = totals.types[onnx::Info(t.type).name];
    ++s.tensors;
    s.values += values;
    s.bytes += t.data.size();
    totals.n_params += values;
    totals.bytes += t.data.size();
    const bool outside = t.external_file >= 0;
    totals.tensors.push_back({{"name", t.name},
                              {"dtype", onnx::Info(t.type).name},
                              {"shape", t.dims},
                              {"bytes", t.data.size()},
                              {"file", outside ? m.external_files[static_cast<size_t>(t.external_file)].name : file}});
  }
  totals.file_bytes += m.file_bytes;
  for (const onnx::ExternalFile& f : m.external_files)
    if (std::find(totals.seen.begin(), totals.seen.end(), f.name) == totals.seen.end()) {
      totals.file_bytes += f.bytes;
      totals.seen.push_back(f.name);
    }
  totals.graphs.push_back(GraphJson(m, role));
}

ordered_json TypesJson(const Totals& totals) {
  std::vector<std::pair<std::string_view, TypeSum>> order(totals.types.begin(), totals.types.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  ordered_json list = ordered_json::array();
  for (const auto& [name, s] : order) list.push_back({{"dtype", name}, {"tensors", s.tensors}, {"n_params", s.values}, {"bytes", s.bytes}});
  return list;
}

ordered_json OrNull(int n) { return n > 0 ? ordered_json(n) : ordered_json(nullptr); }

ordered_json GenAiJson(const onnx::GenAiConfig& c) {
  return {{"vocab_size", OrNull(c.vocab_size)},
          {"d_model", OrNull(c.d_model)},
          {"n_layers", OrNull(c.n_layers)},
          {"n_heads", OrNull(c.n_heads)},
          {"n_kv_heads", OrNull(c.n_kv_heads)},
          {"head_dim", OrNull(c.head_dim)},
          {"max_context", OrNull(c.context_length)},
          {"bos_ids", c.bos_ids},
          {"eos_ids", c.eos_ids}};
}

ordered_json Document(const std::string& path, const char* format, const Totals& totals) {
  ordered_json j;
  j["format"] = format;
  j["arch"] = nullptr;
  j["name"] = nullptr;
  j["path"] = path;
  j["file_bytes"] = totals.file_bytes;
  j["runnable"] = false;
  j["reason"] = nullptr;
  j["n_params"] = totals.n_params;
  j["bpw"] = totals.n_params > 0 ? ordered_json(8.0 * static_cast<double>(totals.bytes) / static_cast<double>(totals.n_params))
                                 : ordered_json(nullptr);
  j["config"] = nullptr;
  j["tokenizer"] = nullptr;
  j["chat_template"] = nullptr;
  j["memory"] = {{"context", nullptr}, {"weights_bytes", totals.bytes}, {"kv_bytes", nullptr}, {"activations_bytes", nullptr}};
  j["types"] = TypesJson(totals);
  j["graphs"] = totals.graphs;
  j["metadata"] = ordered_json::object();
  j["tensors"] = totals.tensors;
  return j;
}

Result<ordered_json> InspectGenAi(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const onnx::GenAiConfig config, onnx::ReadGenAiConfig(path));
  Totals totals;
  for (const onnx::GenAiFile& f : config.files) {
    SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel((std::filesystem::path(path) / f.name).string()));
    Add(m, f.role, totals);
  }
  ordered_json j = Document(path, "genai", totals);
  j["arch"] = config.type.empty() ? ordered_json(nullptr) : ordered_json(config.type);
  j["genai"] = GenAiJson(config);
  // The tokenizer's files are the same as in a Hugging Face folder; without them there is none.
  if (const auto m = model::LoadModel(path, model::LoadWhat::kTokenizerOnly); m.ok()) {
    j["tokenizer"] = TokenizerJson(*m.value());
    j["chat_template"] = TemplateJson(m.value()->tokenizer);
    if (!j["tokenizer"].is_null()) j["tokenizer"]["bos_ids"] = config.bos_ids, j["tokenizer"]["eos_ids"] = config.eos_ids;
  }
  return j;
}

}  // namespace

Result<ordered_json> InspectOnnx(const std::string& path) {
  if (onnx::IsGenAiFolder(path)) return InspectGenAi(path);
  SLM_ASSIGN_OR_RETURN(const std::string file, importer::GraphFile(path));
  SLM_ASSIGN_OR_RETURN(const onnx::Model m, onnx::ReadModel(file));
  Totals totals;
  Add(m, "", totals);
  ordered_json j = Document(path, "onnx", totals);
  j["name"] = m.graph.name.empty() ? ordered_json(nullptr) : ordered_json(m.graph.name);
  for (const auto& [key, value] : m.metadata) j["metadata"][key] = value;
  return j;
}

}  // namespace slm::cli
