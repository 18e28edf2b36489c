// See folder_as_gguf.h.
#include "folder_as_gguf.h"

#include <system_error>

#include "model/gguf/folder/view.h"
#include "output_file.h"
#include "text/vocabulary.h"

namespace slm::cli {
namespace {

// Views of `v`, in the form in which a GGUF file's vocabulary is read.
model::TokenizerSource SourceOf(const text::Vocabulary& v) {
  model::TokenizerSource s;
  s.kind = "gguf";
  s.ggml_model = v.model;
  s.ggml_pre = v.pre;
  s.tokens.assign(v.tokens.begin(), v.tokens.end());
  s.merges.assign(v.merges.begin(), v.merges.end());
  s.scores = v.scores;
  s.token_types = v.kinds;
  s.bos = v.bos;
  s.eos = v.eos;
  s.unk = v.unk;
  s.pad = v.pad;
  s.add_bos = v.add_bos;
  s.add_eos = v.add_eos;
  if (v.model == "llama") s.add_space_prefix = v.add_space_prefix;
  return s;
}

Result<MappedFile> MapPatch(const model::Model& folder, const text::Vocabulary& v, const std::string& out, const Io& io) {
  SLM_ASSIGN_OR_RETURN(const PassingFile passing, PassingFile::Create(out));
  const std::string& path = passing.path();
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  const auto sink = [&](std::span<const std::byte> bytes) { return WriteUnlessCancelled(file, bytes, path, io); };
  SLM_RETURN_IF_ERROR(model::gguf::WriteFolderPatch(folder, SourceOf(v), sink));
  SLM_RETURN_IF_ERROR(file.Commit());
  return MappedFile::Open(path);
}

}  // namespace

Result<std::shared_ptr<model::Model>> FolderAsGguf(std::shared_ptr<model::Model> folder, const std::string& out, const Io& io) {
  const model::TokenizerSource& t = folder->tokenizer;
  text::TokenizerPieces pieces;
  pieces.sentencepiece = t.spm_model;
  pieces.config_json = t.tokenizer_config_json;
  auto v = text::ReadVocabulary(t.tokenizer_json, pieces, folder->config.vocab_size);
  if (!v.ok()) return v.error().At(folder->path);
  auto patch = MapPatch(*folder, v.value(), out, io);
  if (!patch.ok()) return patch.error().At(folder->path);
  return model::gguf::ViewFolder(std::move(folder), patch.Take());
}

}  // namespace slm::cli
