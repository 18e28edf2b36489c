// See export_genai.h. The tokenizer files are the source folder's own, or made from the vocabulary of a GGUF file.
#include "export_genai.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "exporter/exporter.h"
#include "graph/graph.h"
#include "model/hf/packed/writing.h"
#include "onnx/onnx.h"
#include "open_model.h"
#include "output_file.h"
#include "progress.h"
#include "text/tokenizer_json.h"
#include "work/part_folder.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;
using Files = std::vector<std::pair<std::string, std::string>>;  // name, text

// tokenizer_config.json of a GGUF file's vocabulary.
ordered_json TokenizerConfig(const model::Model& m) {
  const model::TokenizerSource& t = m.tokenizer;
  ordered_json j = {{"tokenizer_class", t.ggml_model == "llama" ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                    {"clean_up_tokenization_spaces", false},
                    {"model_max_length", m.config.max_context}};
  const std::pair<const char*, int> tokens[] = {{"bos_token", t.bos}, {"eos_token", t.eos}, {"unk_token", t.unk}, {"pad_token", t.pad}};
  for (const auto& [key, id] : tokens)
    if (id >= 0 && static_cast<size_t>(id) < t.tokens.size()) j[key] = t.tokens[static_cast<size_t>(id)];
  if (t.add_bos >= 0) j["add_bos_token"] = t.add_bos != 0;
  if (!t.chat_template.empty()) j["chat_template"] = t.chat_template;
  return j;
}

Result<Files> TokenizerFiles(const model::Model& m) {
  Files out;
  if (m.tokenizer.kind == "gguf") {
    SLM_ASSIGN_OR_RETURN(std::string json, text::TokenizerJson(PartsOf(m.tokenizer)));
    out.emplace_back("tokenizer.json", std::move(json));
    out.emplace_back("tokenizer_config.json", TokenizerConfig(m).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    return out;
  }
  if (m.format != "hf") return out;  // without a vocabulary
  static const std::set<std::string> kOfTheModel = {"config.json", "generation_config.json", "genai_config.json"};
  SLM_ASSIGN_OR_RETURN(auto files, model::hf::SmallFiles(m.path));
  for (auto& file : files)
    if (!kOfTheModel.contains(file.first)) out.push_back(std::move(file));
  return out;
}

// model.onnx and, for large tensors, model.onnx.data.
Status WriteGraph(const onnx::Model& m, const PartFolder& part, const Io& io) {
  const std::string path = part.File("model.onnx"), data_path = path + ".data";
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  SLM_ASSIGN_OR_RETURN(OutputFile data, OpenOutput(data_path, io));
  const onnx::WriteOptions options{.data_name = "model.onnx.data"};
  SLM_RETURN_IF_ERROR(onnx::WriteModel(
      m, options, [&](std::span<const std::byte> b) { return WriteUnlessCancelled(file, b, path, io); },
      [&](std::span<const std::byte> b) { return WriteUnlessCancelled(data, b, data_path, io); }));
  SLM_RETURN_IF_ERROR(data.Commit());
  return file.Commit();
}

Result<exporter::GenAiModel> Build(std::shared_ptr<const model::Model> model, int context, const GenAiRequest& r) {
  SLM_ASSIGN_OR_RETURN(graph::Graph g, graph::BuildDecoder(std::move(model), {.max_context = context}));
  SLM_RETURN_IF_ERROR(graph::RunPasses(g, exporter::PassesOffForGenAi()));
  return exporter::BuildGenAiModel(g, r.exact ? exporter::Accuracy::kFloat : exporter::Accuracy::kInt8);
}

}  // namespace

Result<int> ExportGenAi(std::shared_ptr<const model::Model> model, const GenAiRequest& r, Io& io) {
  const int own = model->config.max_context > 0 ? model->config.max_context : kDefaultContext;
  if (r.context > own)
    return Error(Code::kInvalidArgument,
                 "--ctx " + std::to_string(r.context) + " is more than the " + std::to_string(own) + " tokens this model was made for",
                 "use --ctx " + std::to_string(own) + " or less");
  const int context = r.context > 0 ? r.context : own;
  SLM_ASSIGN_OR_RETURN(PartFolder part, PartFolder::Create(r.out));
  const auto tokenizer = BuildTokenizer(model->tokenizer);
  const bool none = !tokenizer.ok() && tokenizer.error().code() == Code::kNotFound;
  if (!tokenizer.ok() && !none) return tokenizer.error().At(model->path);
  SLM_ASSIGN_OR_RETURN(Files files, TokenizerFiles(*model));
  files.emplace_back("genai_config.json", exporter::GenAiConfig(*model, context));
  SLM_ASSIGN_OR_RETURN(exporter::GenAiModel built, Build(model, context, r));
  if (none) built.notes.push_back("the model has no tokenizer: neither has the folder");
  SLM_RETURN_IF_ERROR(WriteGraph(built.model, part, io));
  for (const auto& [name, text] : files) SLM_RETURN_IF_ERROR(WriteTextFile(part.File(name), text, io));
  SLM_RETURN_IF_ERROR(part.Commit());
  ordered_json names = {"model.onnx", "model.onnx.data"};
  uint64_t bytes = 0;
  for (const auto& file : files) names.push_back(file.first);
  for (const auto& name : names) {
    std::error_code absent;
    const auto size = std::filesystem::file_size(r.out + "/" + name.get<std::string>(), absent);
    if (!absent) bytes += size;
  }
  if (io.json) {
    io.PrintJson(
        {{"files", names}, {"bytes", bytes}, {"nodes", built.model.graph.nodes.size()}, {"context", context}, {"notes", built.notes}});
    return int{kExitOk};
  }
  io.Note(r.out + ": " + std::to_string(built.model.graph.nodes.size()) + " nodes, " + FormatBytes(bytes));
  for (const std::string& note : built.notes) io.Note(note);
  return int{kExitOk};
}

}  // namespace slm::cli
