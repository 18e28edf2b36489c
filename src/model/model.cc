// See model.h: look-ups of a loaded model, and the choice of a reader by what the path is.
#include "model/model.h"

#include <filesystem>
#include <system_error>

#include "base/mmap.h"
#include "model/gguf/load.h"
#include "model/grouped/grouped.h"
#include "model/hf/load.h"
#include "model/quoted.h"
#include "model/safetensors/reader.h"

namespace slm::model {

namespace {

bool EndsWith(const std::string& s, std::string_view tail) {
  return s.size() >= tail.size() && s.compare(s.size() - tail.size(), tail.size(), tail) == 0;
}

// One safetensors file without a config beside it in the call: tensors can be listed and dumped, a model cannot be run.
Result<std::shared_ptr<Model>> LoadBareSafetensors(const std::string& path, LoadWhat what) {
  if (what != LoadWhat::kContainer)
    return Error(Code::kInvalidArgument, path + ": a safetensors file alone is no model", "name the folder that it lies in");
  SLM_ASSIGN_OR_RETURN(MappedFile map, MappedFile::Open(path));
  auto parsed = safetensors::Parse(map.bytes());
  if (!parsed.ok()) return parsed.error().At(path);
  safetensors::File file = parsed.Take();
  auto m = std::make_shared<Model>();
  m->path = path;
  m->format = "safetensors";
  m->tensors = std::move(file.tensors);
  for (auto& [key, value] : file.metadata) m->metadata.emplace_back(PrintableUtf8(key, 200), PrintableUtf8(value, 200));
  m->file_bytes = map.bytes().size();
  m->files.push_back(std::move(map));
  if (Status s = hf::JoinBesideConfig(std::filesystem::path(path).parent_path().string(), m.get()); !s.ok()) return s.error().At(path);
  return std::shared_ptr<Model>(std::move(m));
}

}  // namespace

const Tensor* Model::Find(Role role, int layer) const {
  const bool per_layer = role >= Role::kAttnNorm;
  const int row = per_layer ? layer + 1 : 0;
  if (row < 0 || role >= Role::kCount) return nullptr;
  const size_t slot = static_cast<size_t>(row) * static_cast<size_t>(Role::kCount) + static_cast<size_t>(role);
  if (slot >= role_index.size() || role_index[slot] < 0) return nullptr;
  return &tensors[static_cast<size_t>(role_index[slot])];
}

const Tensor* Model::FindName(std::string_view name) const {
  for (const Tensor& t : tensors)
    if (t.name == name) return &t;
  return nullptr;
}

void Model::ReleaseVocabulary() {
  TokenizerSource kept;
  kept.kind = tokenizer.kind;
  kept.ggml_model = tokenizer.ggml_model;
  kept.ggml_pre = tokenizer.ggml_pre;
  kept.chat_template = std::move(tokenizer.chat_template);
  kept.named_templates = std::move(tokenizer.named_templates);
  tokenizer = std::move(kept);
}

uint64_t Tensor::stored_bytes() const { return data.size() + packed_bytes + (grouped ? grouped->stored_bytes() : 0); }

void Model::DropPages(const Tensor& t) const {
  DropPages(t.data);
  if (t.grouped)
    for (const auto part : {t.grouped->codes, t.grouped->scales, t.grouped->zeros, t.grouped->group_of, t.grouped->offsets})
      DropPages(part);
}

void Model::DropPages(std::span<const std::byte> part) const {
  for (const MappedFile& f : files) f.Drop(part);
}

void ReadRows(const Tensor& t, int64_t begin, int64_t end, float* out) {
  if (t.grouped) return ReadGroupedValues(*t.grouped, begin, end, out);
  const int64_t width = t.dims.empty() ? 1 : t.dims.back();
  Dequantize(t.dtype, t.data, begin * width, end * width, out);
}

std::string_view TypeName(const Tensor& t) { return t.foreign_type.empty() ? Info(t.dtype).name : t.foreign_type; }

Result<std::shared_ptr<Model>> LoadModel(const std::string& path, LoadWhat what) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) return hf::Load(path, what);
  if (EndsWith(path, ".safetensors")) return LoadBareSafetensors(path, what);
  if (EndsWith(path, ".onnx"))
    return Error(Code::kUnsupported, path + ": an ONNX file, which this verb does not take",
                 "name a GGUF file or a Hugging Face folder; slm run, chat, bench, eval and inspect take ONNX files");
  return gguf::Load(path, what);
}

}  // namespace slm::model
