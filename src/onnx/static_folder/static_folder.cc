// See static_folder.h.
#include "onnx/static_folder/static_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/hf/folder.h"
#include "model/hf/keys.h"
#include "model/json.h"
#include "model/quoted.h"

namespace slm::onnx {
namespace {

using model::Quoted;
using model::hf::Keys;
using nlohmann::json;

constexpr const char* kName = "manifest.json";
constexpr const char* kHint = "export the folder again with slm export --to qdq";
constexpr int kMaxLayers = 4096, kMaxContext = 1 << 24, kMaxVocabulary = 1 << 26, kMaxWidth = 1 << 20, kMaxChunk = 1 << 16;
constexpr size_t kMaxGraphs = 16, kMaxInputs = 64, kMaxTokens = 64, kMaxFiles = 256;

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

// A number that must be there, from `least` to `most`.
Status Size(const Keys& keys, const char* name, int least, int most, int* out) {
  if (!keys.Has(name)) return Corrupt(fmt::format("no \"{}\"", name));
  SLM_RETURN_IF_ERROR(keys.Int(name, out));
  if (*out < least || *out > most) return Corrupt(fmt::format("\"{}\" is {}; at least {}, at most {}", name, *out, least, most));
  return Ok();
}

Status Words(const Keys& keys, const char* name, std::string* out) {
  SLM_RETURN_IF_ERROR(keys.Text(name, out));
  return out->empty() ? Status(Corrupt(fmt::format("no \"{}\"", name))) : Ok();
}

Result<Keys> Part(const Keys& root, const char* name) {
  SLM_ASSIGN_OR_RETURN(const json* part, root.Object(name));
  if (!part) return Corrupt(fmt::format("no \"{}\"", name));
  return Keys(*part);
}

// A list of at most `most` objects or numbers, at least one of them.
Result<const json*> Some(const Keys& keys, const char* name, size_t most) {
  SLM_ASSIGN_OR_RETURN(const json* list, keys.List(name));
  if (!list || list->empty() || list->size() > most) return Corrupt(fmt::format("\"{}\" is not a list of 1 to {}", name, most));
  return list;
}

Status Element(const Keys& keys, const char* name, StaticElement* out) {
  std::string text;
  SLM_RETURN_IF_ERROR(Words(keys, name, &text));
  if (text == "F32") *out = StaticElement::kF32;
  else if (text == "U16") *out = StaticElement::kU16;
  else if (text == "I16") *out = StaticElement::kI16;
  else return Corrupt(fmt::format("\"{}\" is {}, not F32, U16 or I16", name, Quoted(text)));
  return Ok();
}

Status Graphs(const Keys& root, StaticManifest& m) {
  SLM_ASSIGN_OR_RETURN(const json* list, Some(root, "graphs", kMaxGraphs));
  for (const json& each : *list) {
    const Keys keys(each);
    StaticGraphFile g;
    SLM_RETURN_IF_ERROR(Words(keys, "file", &g.name));
    SLM_RETURN_IF_ERROR(Size(keys, "tokens", 1, std::min(kMaxChunk, m.context), &g.tokens));
    m.graphs.push_back(std::move(g));
  }
  std::stable_sort(m.graphs.begin(), m.graphs.end(), [](const auto& a, const auto& b) { return a.tokens > b.tokens; });
  return Ok();
}

bool Holds(StaticElement e, double v) {
  switch (e) {
    case StaticElement::kU16: return v >= 0 && v <= UINT16_MAX && v == std::floor(v);
    case StaticElement::kI16: return v >= INT16_MIN && v <= INT16_MAX && v == std::floor(v);
    case StaticElement::kF32: return std::isfinite(v);
  }
  return false;
}

Status MaskOf(const Keys& keys, StaticElement type, StaticGraphInput& input) {
  int repeats = 1, window = 0;
  SLM_RETURN_IF_ERROR(Size(keys, "repeats", 1, kMaxLayers, &repeats));
  SLM_RETURN_IF_ERROR(Size(keys, "window", 0, kMaxContext, &window));
  input.repeats = repeats, input.window = window;
  for (const auto& [name, to] : {std::pair{"allowed", &input.allowed}, {"masked", &input.masked}}) {
    if (!keys.Has(name)) return Corrupt(fmt::format("no \"{}\"", name));
    SLM_RETURN_IF_ERROR(keys.Float(name, to));
    if (!Holds(type, *to)) return Corrupt(fmt::format("\"{}\" is no value of its input's type", name));
  }
  return Ok();
}

Status Inputs(const Keys& root, StaticManifest& m) {
  SLM_ASSIGN_OR_RETURN(const json* list, Some(root, "inputs", kMaxInputs));
  for (const json& each : *list) {
    const Keys keys(each);
    StaticGraphInput input;
    std::string rows;
    SLM_RETURN_IF_ERROR(Words(keys, "name", &input.name));
    SLM_RETURN_IF_ERROR(Words(keys, "rows", &rows));
    if (rows == "mask") {
      input.rows = StaticGraphInput::Rows::kMask;
      SLM_RETURN_IF_ERROR(MaskOf(keys, m.input_type, input));
    } else if (rows == "token" || rows == "position") {
      input.rows = rows == "token" ? StaticGraphInput::Rows::kToken : StaticGraphInput::Rows::kPosition;
      SLM_RETURN_IF_ERROR(Words(keys, "table", &input.table));
    } else {
      return Corrupt("\"rows\" is " + Quoted(rows) + ", not token, position or mask");
    }
    m.inputs.push_back(std::move(input));
  }
  return Ok();
}

Status Scales(const Keys& cache, const char* name, int n_layers, std::vector<float>* out) {
  SLM_ASSIGN_OR_RETURN(const json* list, cache.List(name));
  if (!list) return Ok();
  if (list->size() != static_cast<size_t>(n_layers)) return Corrupt(fmt::format("\"{}\" has not one number a layer", name));
  for (const json& each : *list) {
    if (!each.is_number() || !std::isfinite(each.get<float>()) || each.get<float>() <= 0)
      return Corrupt(fmt::format("\"{}\" is not a list of positive numbers", name));
    out->push_back(each.get<float>());
  }
  return Ok();
}

// A list of tokens of the vocabulary; an absent one is empty.
Status Tokens(const Keys& keys, const char* name, const StaticManifest& m, std::vector<int32_t>* out) {
  SLM_ASSIGN_OR_RETURN(const json* list, keys.List(name));
  if (!list) return Ok();
  if (list->size() > kMaxTokens) return Corrupt(fmt::format("\"{}\" has {} tokens, at most {}", name, list->size(), kMaxTokens));
  for (const json& t : *list) {
    if (!t.is_number_integer() || t < 0 || t >= m.vocab_size) return Keys::Wrong(name, "a list of tokens of the vocabulary");
    out->push_back(t.get<int32_t>());
  }
  return Ok();
}

Status Prefix(const Keys& root, StaticManifest& m) {
  SLM_ASSIGN_OR_RETURN(const Keys prefix, Part(root, "prefix"));
  SLM_RETURN_IF_ERROR(Tokens(prefix, "tokens", m, &m.prefix_tokens));
  if (m.prefix_tokens.size() >= static_cast<size_t>(m.context)) return Corrupt("the prefix fills the context");
  return prefix.Text("logits", &m.prefix_logits);
}

// Of every graph, the host file and whatever else is listed.
Status Sums(const Keys& root, StaticManifest& m) {
  SLM_ASSIGN_OR_RETURN(const json* files, root.Object("files"));
  if (!files || files->size() > kMaxFiles) return Corrupt("\"files\" is not an object of sums");
  for (const auto& [name, sum] : files->items()) {
    if (!sum.is_string()) return Keys::Wrong("files", "an object of texts");
    m.sha256.emplace_back(name, sum.get<std::string>());
  }
  std::vector<std::string> needed = {m.host_file};
  for (const StaticGraphFile& g : m.graphs) needed.push_back(g.name);
  for (const std::string& name : needed)
    if (std::none_of(m.sha256.begin(), m.sha256.end(), [&](const auto& f) { return f.first == name; }))
      return Corrupt("\"files\" has no sum of " + Quoted(name));
  return Ok();
}

Status Fill(const Keys& root, StaticManifest& m) {
  std::string format;
  int version = 0;
  SLM_RETURN_IF_ERROR(root.Text("format", &format));
  SLM_RETURN_IF_ERROR(root.Int("version", &version));
  if (format != "slmkit-static" || version != 1)
    return Error(Code::kUnsupported, fmt::format("format {} version {} is not slmkit-static 1", Quoted(format), version), kHint);
  SLM_RETURN_IF_ERROR(Size(root, "context", 1, kMaxContext, &m.context));
  SLM_ASSIGN_OR_RETURN(const Keys model, Part(root, "model"));
  SLM_RETURN_IF_ERROR(Words(model, "architecture", &m.architecture));
  SLM_RETURN_IF_ERROR(Size(model, "vocab_size", 1, kMaxVocabulary, &m.vocab_size));
  SLM_RETURN_IF_ERROR(Size(model, "d_model", 1, kMaxWidth, &m.d_model));
  SLM_RETURN_IF_ERROR(Size(model, "layers", 1, kMaxLayers, &m.n_layers));
  SLM_RETURN_IF_ERROR(Size(model, "query_heads", 1, kMaxLayers, &m.n_heads));
  SLM_RETURN_IF_ERROR(Size(model, "kv_heads", 1, kMaxLayers, &m.n_kv_heads));
  SLM_RETURN_IF_ERROR(Size(model, "head_dim", 1, kMaxWidth, &m.head_dim));
  SLM_RETURN_IF_ERROR(Tokens(model, "bos_token_ids", m, &m.bos_ids));
  SLM_RETURN_IF_ERROR(Tokens(model, "eos_token_ids", m, &m.eos_ids));
  SLM_ASSIGN_OR_RETURN(const Keys recipe, Part(root, "recipe"));
  SLM_RETURN_IF_ERROR(recipe.Text("weights", &m.weights));
  SLM_RETURN_IF_ERROR(Element(root, "input_dtype", &m.input_type));
  SLM_RETURN_IF_ERROR(Graphs(root, m));
  SLM_RETURN_IF_ERROR(Inputs(root, m));
  SLM_RETURN_IF_ERROR(Words(root, "host_file", &m.host_file));
  SLM_RETURN_IF_ERROR(Sums(root, m));
  SLM_ASSIGN_OR_RETURN(const Keys logits, Part(root, "logits"));
  SLM_RETURN_IF_ERROR(Words(logits, "name", &m.logits));
  SLM_ASSIGN_OR_RETURN(const Keys cache, Part(root, "cache"));
  SLM_RETURN_IF_ERROR(Element(cache, "dtype", &m.cache_type));
  SLM_RETURN_IF_ERROR(Scales(cache, "key_scales", m.n_layers, &m.key_scales));
  SLM_RETURN_IF_ERROR(Scales(cache, "value_scales", m.n_layers, &m.value_scales));
  return Prefix(root, m);
}

constexpr const char* TypeName(StaticElement e) {
  switch (e) {
    case StaticElement::kF32: return "F32";
    case StaticElement::kU16: return "U16";
    case StaticElement::kI16: return "I16";
  }
  return "";
}
bool IsOf(StaticElement e, const model::Tensor& t) {
  switch (e) {
    case StaticElement::kF32: return t.dtype == DType::kF32;
    case StaticElement::kI16: return t.dtype == DType::kI16;
    case StaticElement::kU16: return t.foreign_type == "U16";
  }
  return false;
}

// The tensor must be there with that type and, where dims are not -1, that shape.
Status CheckTable(const StaticFolder& f, const std::string& name, StaticElement type, const std::vector<int64_t>& dims) {
  const model::Tensor* t = f.host->FindName(name);
  if (!t) return Corrupt("no tensor " + Quoted(name));
  bool fits = IsOf(type, *t) && t->dims.size() == dims.size();
  for (size_t i = 0; fits && i < dims.size(); ++i) fits = dims[i] < 0 ? t->dims[i] > 0 : t->dims[i] == dims[i];
  if (fits) return Ok();
  std::string want;
  for (const int64_t d : dims) want += (want.empty() ? "" : ", ") + (d < 0 ? std::string("n") : std::to_string(d));
  return Corrupt(fmt::format("tensor {} is not [{}] of {}", Quoted(name), want, TypeName(type)));
}

Status CheckTables(const StaticFolder& f) {
  const StaticManifest& m = f.manifest;
  for (const StaticGraphInput& i : m.inputs) {
    if (i.rows == StaticGraphInput::Rows::kMask) continue;
    const bool by_token = i.rows == StaticGraphInput::Rows::kToken;
    SLM_RETURN_IF_ERROR(CheckTable(f, i.table, m.input_type, {by_token ? m.vocab_size : m.context, by_token ? m.d_model : -1}));
  }
  const auto n = static_cast<int64_t>(m.prefix_tokens.size());
  if (n == 0) return Ok();
  for (int layer = 0; layer < m.n_layers; ++layer) {
    SLM_RETURN_IF_ERROR(CheckTable(f, PrefixKeyName(layer), m.cache_type, {m.n_kv_heads, m.head_dim, n}));
    SLM_RETURN_IF_ERROR(CheckTable(f, PrefixValueName(layer), m.cache_type, {m.n_kv_heads, n, m.head_dim}));
  }
  return m.prefix_logits.empty() ? Ok() : CheckTable(f, m.prefix_logits, StaticElement::kF32, {n, m.vocab_size});
}

}  // namespace

Result<StaticManifest> ParseStaticManifest(std::string_view text) {
  SLM_ASSIGN_OR_RETURN(const json root, model::ParseJson(text));
  if (!root.is_object()) return Corrupt("not an object");
  StaticManifest m;
  SLM_RETURN_IF_ERROR(Fill(Keys(root), m));
  return m;
}

bool IsStaticFolder(const std::string& path) {
  std::error_code absent;
  const std::filesystem::path folder(path);
  return std::filesystem::exists(folder / kName, absent) && !std::filesystem::exists(folder / "config.json", absent);
}

Result<StaticFolder> ReadStaticFolder(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const model::hf::Folder files, model::hf::Folder::Open(path));
  const std::string place = path + ": " + kName;
  auto text = files.Text(kName, model::JsonLimits{}.bytes);
  if (!text.ok()) return text.error().At(place);
  auto manifest = ParseStaticManifest(text.value());
  if (!manifest.ok()) return manifest.error().At(place);
  StaticFolder f{.path = path, .manifest = manifest.Take(), .host = nullptr};
  std::vector<std::string> names = {f.manifest.host_file};
  for (const auto& file : f.manifest.sha256) names.push_back(file.first);
  for (const StaticGraphFile& g : f.manifest.graphs) names.push_back(g.name);
  for (const std::string& name : names)
    if (const auto there = files.Map(name); !there.ok()) return there.error().At(place);
  SLM_ASSIGN_OR_RETURN(f.host, model::LoadModel(path + "/" + f.manifest.host_file, model::LoadWhat::kContainer));
  if (const Status s = CheckTables(f); !s.ok()) return s.error().At(path + "/" + f.manifest.host_file);
  return f;
}

}  // namespace slm::onnx
