// See load.h.
#include "model/hf/load.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <unordered_map>

#include "model/hf/config.h"
#include "model/hf/folder.h"
#include "model/hf/keys.h"
#include "model/hf/packed/quantization.h"
#include "model/hf/tokenizer.h"
#include "model/json.h"
#include "model/quoted.h"
#include "model/roles.h"
#include "model/safetensors/reader.h"

namespace slm::model::hf {
namespace {

using Json = nlohmann::json;
constexpr size_t kConfigLimit = size_t{16} << 20;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), "fetch the model again"); }

// Maps one safetensors file and appends its tensors.
Status AddFile(const Folder& folder, const std::string& name, Model* m) {
  SLM_ASSIGN_OR_RETURN(MappedFile map, folder.Map(name));
  auto parsed = safetensors::Parse(map.bytes());
  if (!parsed.ok()) return parsed.error().At(name);
  safetensors::File file = parsed.Take();
  for (Tensor& t : file.tensors) m->tensors.push_back(std::move(t));
  for (auto& [key, value] : file.metadata) m->metadata.emplace_back(PrintableUtf8(key, 200), PrintableUtf8(value, 200));
  m->file_bytes += map.bytes().size();
  m->files.push_back(std::move(map));
  return Ok();
}

// The index as {tensor name: file name}.
Result<std::map<std::string, std::string>> ReadIndex(const Folder& folder) {
  SLM_ASSIGN_OR_RETURN(const std::string text, folder.Text(kIndex, kConfigLimit));
  auto parsed = ParseJson(text);
  if (!parsed.ok()) return parsed.error().At(kIndex);
  const Json& json = parsed.value();
  SLM_ASSIGN_OR_RETURN(const Json* list, Keys(json).Object("weight_map"));
  if (!list || list->empty()) return Keys::Wrong("weight_map", "there");
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : list->items()) {
    if (!file.is_string()) return Keys::Wrong("weight_map", "a map from tensors to files");
    out.emplace(tensor, file.get<std::string>());
  }
  return out;
}

// Every tensor that the index names must be in the shard that it names, and in no other.
Status AddShards(const Folder& folder, Model* m) {
  SLM_ASSIGN_OR_RETURN(const auto index, ReadIndex(folder));
  std::unordered_map<std::string, std::string> found;  // tensor -> shard
  std::map<std::string, size_t> shards;
  for (const auto& [tensor, shard] : index) shards[shard];
  for (const auto& [shard, unused] : shards) {
    const size_t first = m->tensors.size();
    SLM_RETURN_IF_ERROR(AddFile(folder, shard, m));
    for (size_t i = first; i < m->tensors.size(); ++i)
      if (!found.emplace(m->tensors[i].name, shard).second)
        return Corrupt("tensor " + Quoted(m->tensors[i].name) + " occurs in two shards");
  }
  for (const auto& [tensor, shard] : index) {
    const auto it = found.find(tensor);
    if (it == found.end() || it->second != shard)
      return Corrupt(fmt::format("{}: tensor {} is not in {}", kIndex, Quoted(tensor), Quoted(shard)));
  }
  return Ok();
}

Status AddWeights(const Folder& folder, Model* m) {
  if (folder.Has(kSingle)) return AddFile(folder, kSingle, m);
  if (folder.Has(kIndex)) return AddShards(folder, m);
  const bool pickle = folder.Has("pytorch_model.bin") || folder.Has("pytorch_model.bin.index.json");
  return Error(pickle ? Code::kUnsupported : Code::kNotFound,
               pickle ? "weights are only there as pytorch_model.bin" : "no weights: model.safetensors is missing",
               pickle ? "save the model again as safetensors" : "name a complete model folder");
}

// What stands before "layers.0." in this checkpoint.
Result<std::string> FindPrefix(const Model& m) {
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model.", ""})
    if (m.FindName(std::string(prefix) + "embed_tokens.weight")) return std::string(prefix);
  return Corrupt("tensor \"model.embed_tokens.weight\" is missing");
}

// A checkpoint may hold a head although its config says that it is tied: equal to the embedding it is the same thing, different
// from it the config is wrong, as transformers decides too.
Status SettleHead(const std::string& prefix, Model* m) {
  const Tensor* embedding = m->FindName(prefix + "embed_tokens.weight");
  const Tensor* head = m->FindName("lm_head.weight");
  if (!head) head = m->FindName("language_model.lm_head.weight");
  if (embedding->packed_bytes > 0) return Ok();  // a package: its writer has settled it, and the head streams the embedding's rows
  if (head && (head->grouped || embedding->grouped)) m->config.tied_head = false;
  if (m->config.tied_head && head)
    m->config.tied_head = head->data.size() == embedding->data.size() && head->dtype == embedding->dtype &&
                          std::memcmp(head->data.data(), embedding->data.data(), head->data.size()) == 0;
  return Ok();
}

// Scalars of config.json as text, for listings; one level of nesting.
void ListScalars(const Json& object, const std::string& prefix, Model* m) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + PrintableUtf8(key, 200);
    if (value.is_object() && prefix.empty()) ListScalars(value, name + ".", m);
    else if (value.is_string()) m->metadata.emplace_back(name, PrintableUtf8(value.get_ref<const std::string&>(), 200));
    else if (value.is_array() && value.size() > 8) m->metadata.emplace_back(name, fmt::format("[{} items]", value.size()));
    else if (!value.is_object())
      m->metadata.emplace_back(name, PrintableUtf8(value.dump(-1, ' ', false, Json::error_handler_t::replace), 200));
  }
}

Status ReadConfigFiles(const Folder& folder, Model* m) {
  SLM_ASSIGN_OR_RETURN(const std::string text, folder.Text("config.json", kConfigLimit));
  if (text.empty())
    return Error(folder.Has("config.json") ? Code::kCorrupt : Code::kNotFound, "config.json is missing or empty",
                 "name a complete model folder");
  auto config = ParseConfig(text);
  if (!config.ok()) return config.error().At("config.json");
  m->config = config.Take();
  SLM_ASSIGN_OR_RETURN(const std::string generation, folder.Text("generation_config.json", kConfigLimit));
  if (generation.empty()) return Ok();
  if (Status s = AddGenerationConfig(generation, &m->config); !s.ok()) return s.error().At("generation_config.json");
  return Ok();
}

Status ListConfig(const Folder& folder, Model* m) {
  SLM_ASSIGN_OR_RETURN(const std::string text, folder.Text("config.json", kConfigLimit));
  if (text.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (json.is_object()) ListScalars(json, "", m);
  return Ok();
}

// Packed integer weights become one tensor a matrix. For listings, what cannot be read as matrices stays as it lies in the file.
Status JoinWeights(const Folder& folder, LoadWhat what, Model* m) {
  auto found = ReadQuantization(folder);
  if (!found.ok()) return what == LoadWhat::kContainer ? Ok() : Status(found.error());
  const Quantization q = found.Take();
  if (q.method == QuantMethod::kOther && what == LoadWhat::kAll)
    return Error(Code::kUnsupported, "the weights are quantized (" + Quoted(q.name) + ")",
                 "supported: awq, gptq, compressed-tensors; use the original model, or a GGUF file of it");
  return JoinGrouped(q, m);
}

}  // namespace

Status JoinBesideConfig(const std::string& folder_path, Model* m) {
  auto folder = Folder::Open(folder_path.empty() ? "." : folder_path);
  return folder.ok() ? JoinWeights(folder.value(), LoadWhat::kContainer, m) : Ok();
}

Status FillModel(const Folder& folder, LoadWhat what, Model* m) {
  SLM_ASSIGN_OR_RETURN(m->tokenizer, ReadTokenizer(folder));
  if (what == LoadWhat::kTokenizerOnly) {
    if (m->tokenizer.kind.empty())
      return Error(Code::kNotFound, "no tokenizer.json, tokenizer.model or vocab.json", "name a complete model folder");
    Model probe;
    if (ReadConfigFiles(folder, &probe).ok()) m->config = std::move(probe.config);
    return Ok();
  }
  if (folder.Has("genai_config.json") && !folder.Has(kSingle) && !folder.Has(kIndex))
    return Error(Code::kUnsupported, "a folder of ONNX Runtime GenAI, which own kernels do not run yet",
                 "slm run, chat, bench and eval take it with --backend ort; slm inspect shows what is in it");
  if (Status s = ListConfig(folder, m); !s.ok()) return s.error().At("config.json");
  if (what == LoadWhat::kAll) SLM_RETURN_IF_ERROR(ReadConfigFiles(folder, m));
  if (m->tensors.empty()) SLM_RETURN_IF_ERROR(AddWeights(folder, m));
  SLM_RETURN_IF_ERROR(JoinWeights(folder, what, m));
  if (what == LoadWhat::kContainer) return Ok();
  SLM_ASSIGN_OR_RETURN(const std::string prefix, FindPrefix(*m));
  SLM_RETURN_IF_ERROR(SettleHead(prefix, m));
  SLM_RETURN_IF_ERROR(BindRoles(Naming::kHf, prefix, m));
  return Ok();
}

Result<std::shared_ptr<Model>> Load(const std::string& path, LoadWhat what) {
  SLM_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(path));
  auto m = std::make_shared<Model>();
  m->path = path;
  m->format = "hf";
  if (Status s = FillModel(folder, what, m.get()); !s.ok()) return s.error().At(path);
  return std::shared_ptr<Model>(std::move(m));
}

}  // namespace slm::model::hf
