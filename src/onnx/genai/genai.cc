// See genai.h. The key names are those of onnxruntime-genai's src/config.h.
#include "onnx/genai/genai.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/hf/folder.h"
#include "model/hf/keys.h"
#include "model/json.h"
#include "model/quoted.h"
#include "onnx/genai/stages.h"

namespace slm::onnx {
namespace {

using model::Quoted;
using model::hf::Folder;
using model::hf::Keys;
using nlohmann::json;

constexpr const char* kName = "genai_config.json";
constexpr const char* kHint = "the folder is damaged or not made by ONNX Runtime GenAI: export or fetch it again";
constexpr int kMaxLayers = 4096, kMaxContext = 1 << 28, kMaxVocabulary = 1 << 26, kMaxWidth = 1 << 20;

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

Status Size(const Keys& keys, const char* name, int most, int* out) {
  SLM_RETURN_IF_ERROR(keys.Int(name, out));
  if (keys.Has(name) && (*out < 1 || *out > most)) return Corrupt(fmt::format("\"{}\" is {}; at least 1, at most {}", name, *out, most));
  return Ok();
}

// A number or a list of numbers.
Status Ids(const Keys& keys, const char* name, std::vector<int>* out) {
  const json* v = keys.Find(name);
  if (!v) return Ok();
  const json list = v->is_array() ? *v : json::array({*v});
  for (const json& id : list) {
    if (!id.is_number_integer() || id > kMaxVocabulary || id < -1) return Keys::Wrong(name, "a token id or a list of them");
    if (id >= 0) out->push_back(id.get<int>());
  }
  return Ok();
}

// Where a key of "inputs" or "outputs" goes; GenAI's names for it.
struct NameKey {
  const char* key;
  std::string GenAiNames::*name;
};
constexpr NameKey kNameKeys[] = {
    {"input_ids", &GenAiNames::input_ids},
    {"attention_mask", &GenAiNames::attention_mask},
    {"position_ids", &GenAiNames::position_ids},
    {"past_key_names", &GenAiNames::past_key},
    {"past_value_names", &GenAiNames::past_value},
    {"logits", &GenAiNames::logits},
    {"present_key_names", &GenAiNames::present_key},
    {"present_value_names", &GenAiNames::present_value},
    {"past_sequence_length", &GenAiNames::last_slot},
    {"total_sequence_length", &GenAiNames::total},
};

// Names of inputs and outputs, some of them patterns that GenAI fills with printf.
Status Names(const Keys& part, const char* which, GenAiNames* out) {
  SLM_ASSIGN_OR_RETURN(const json* names, part.Object(which));
  if (!names) return Ok();
  for (const auto& [key, value] : names->items()) {
    if (!value.is_string()) return Keys::Wrong(key.c_str(), "a string");
    const std::string& text = value.get_ref<const std::string&>();
    const size_t at = text.find('%');
    if (at != std::string::npos && (text.compare(at, 2, "%d") != 0 || text.find('%', at + 1) != std::string::npos))
      return Corrupt(fmt::format("\"{}\": the pattern {} is more than one %d", key, Quoted(text)));
    for (const NameKey& k : kNameKeys)
      if (key == k.key) out->*k.name = text;
  }
  return Ok();
}

void AddName(const std::string& role, const std::string& name, GenAiConfig& c) {
  for (const GenAiFile& f : c.files)
    if (f.name == name) return;
  if (!name.empty()) c.files.push_back({role, name});
}

Status AddFile(const Keys& part, const std::string& role, GenAiConfig& c) {
  std::string name;
  SLM_RETURN_IF_ERROR(part.Text("filename", &name));
  AddName(role, name, c);
  return Ok();
}

Status AddStages(const Keys& decoder, std::string_view text, GenAiConfig& c) {
  SLM_ASSIGN_OR_RETURN(c.stages, ReadStages(decoder, text));
  for (const GenAiStage& s : c.stages) AddName(model::PrintableUtf8(s.name, 80), s.file, c);
  SLM_ASSIGN_OR_RETURN(const json* window, decoder.Object("sliding_window"));
  if (!window) return Ok();
  c.slides_cache = true;  // GenAI's own default
  return Keys(*window).Bool("slide_key_value_cache", &c.slides_cache);
}

Status FillDecoder(const Keys& model, std::string_view text, GenAiConfig& c) {
  SLM_ASSIGN_OR_RETURN(const json* part, model.Object("decoder"));
  if (!part) return Ok();
  const Keys decoder(*part);
  SLM_RETURN_IF_ERROR(Size(decoder, "num_hidden_layers", kMaxLayers, &c.n_layers));
  SLM_RETURN_IF_ERROR(Size(decoder, "hidden_size", kMaxWidth, &c.d_model));
  SLM_RETURN_IF_ERROR(Size(decoder, "num_attention_heads", kMaxWidth, &c.n_heads));
  SLM_RETURN_IF_ERROR(Size(decoder, "num_key_value_heads", kMaxWidth, &c.n_kv_heads));
  SLM_RETURN_IF_ERROR(Size(decoder, "head_size", kMaxWidth, &c.head_dim));
  SLM_RETURN_IF_ERROR(Names(decoder, "inputs", &c.names));
  SLM_RETURN_IF_ERROR(Names(decoder, "outputs", &c.names));
  SLM_RETURN_IF_ERROR(AddFile(decoder, "decoder", c));
  return AddStages(decoder, text, c);
}

Status Fill(const json& root, std::string_view text, GenAiConfig& c) {
  SLM_ASSIGN_OR_RETURN(const json* part, Keys(root).Object("model"));
  if (!part) return Corrupt("no \"model\"");
  const Keys model(*part);
  SLM_RETURN_IF_ERROR(model.Text("type", &c.type));
  SLM_RETURN_IF_ERROR(Size(model, "context_length", kMaxContext, &c.context_length));
  SLM_RETURN_IF_ERROR(Size(model, "vocab_size", kMaxVocabulary, &c.vocab_size));
  SLM_RETURN_IF_ERROR(Ids(model, "bos_token_id", &c.bos_ids));
  SLM_RETURN_IF_ERROR(Ids(model, "eos_token_id", &c.eos_ids));
  SLM_RETURN_IF_ERROR(FillDecoder(model, text, c));
  for (const char* role : {"encoder", "embedding", "vision", "speech", "joiner", "vad", "mtp", "draft"}) {
    SLM_ASSIGN_OR_RETURN(const json* other, model.Object(role));
    if (other) SLM_RETURN_IF_ERROR(AddFile(Keys(*other), role, c));
  }
  if (c.files.empty()) return Corrupt("names no ONNX file");
  return Ok();
}

}  // namespace

bool IsGenAiFolder(const std::string& path) {
  std::error_code ec;
  return std::filesystem::exists(std::filesystem::path(path) / kName, ec);
}

bool OnlyDecoder(const GenAiConfig& config) { return config.files.size() == 1 && config.files[0].role == "decoder"; }

bool OnlyPipeline(const GenAiConfig& config) {
  const auto is_stage = [&](const GenAiFile& f) {
    return std::any_of(config.stages.begin(), config.stages.end(), [&](const GenAiStage& s) { return s.file == f.name; });
  };
  return !config.stages.empty() && config.files.front().role != "decoder" &&
         std::all_of(config.files.begin(), config.files.end(), is_stage);
}

Result<GenAiConfig> ParseGenAiConfig(std::string_view text) {
  SLM_ASSIGN_OR_RETURN(const json root, model::ParseJson(text));
  GenAiConfig c;
  SLM_RETURN_IF_ERROR(Fill(root, text, c));
  return c;
}

Result<GenAiConfig> ReadGenAiConfig(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(path));
  const std::string place = path + ": " + kName;
  auto text = folder.Text(kName, model::JsonLimits{}.bytes);
  if (!text.ok()) return text.error().At(place);
  auto c = ParseGenAiConfig(text.value());
  if (!c.ok()) return c.error().At(place);
  for (const GenAiFile& f : c.value().files)
    if (const auto there = folder.Map(f.name); !there.ok()) return there.error().At(f.role).At(place);
  return c;
}

}  // namespace slm::onnx
