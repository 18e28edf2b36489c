// See export_genai.h.
#include "export_genai.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "onnx/onnx.h"
#include "open_model.h"
#include "output_file.h"
#include "progress.h"
#include "tokenizer_files.h"
#include "work/part_folder.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

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

}  // namespace

Result<exporter::GenAiModel> GenAiModelOf(std::shared_ptr<const model::Model> model, int context, exporter::Accuracy accuracy) {
  SLM_ASSIGN_OR_RETURN(graph::Graph g, graph::BuildDecoder(std::move(model), {.max_context = context}));
  SLM_RETURN_IF_ERROR(graph::RunPasses(g, exporter::PassesOffForGenAi()));
  return exporter::BuildGenAiModel(g, accuracy);
}

Result<int> ExportGenAi(std::shared_ptr<const model::Model> model, const GenAiRequest& r, Io& io) {
  const int own = model->config.max_context > 0 ? model->config.max_context : kDefaultContext;
  SLM_RETURN_IF_ERROR(CheckContext(r.context, own));
  const int context = r.context > 0 ? r.context : own;
  SLM_ASSIGN_OR_RETURN(PartFolder part, PartFolder::Create(r.out));
  SLM_ASSIGN_OR_RETURN(TokenizerFiles tokenizer, TokenizerFilesOf(*model));
  auto& files = tokenizer.files;
  files.emplace_back("genai_config.json", exporter::GenAiConfig(*model, context));
  const auto accuracy = r.exact ? exporter::Accuracy::kFloat : exporter::Accuracy::kInt8;
  SLM_ASSIGN_OR_RETURN(exporter::GenAiModel built, GenAiModelOf(model, context, accuracy));
  if (!tokenizer.note.empty()) built.notes.push_back(tokenizer.note);
  SLM_RETURN_IF_ERROR(WriteGraph(built.model, part, io));
  for (const auto& [name, text] : files) SLM_RETURN_IF_ERROR(WriteTextFile(part.File(name), text, io));
  SLM_RETURN_IF_ERROR(part.Commit());
  ordered_json names = {"model.onnx", "model.onnx.data"};
  for (const auto& file : files) names.push_back(file.first);
  const uint64_t bytes = BytesOf(r.out);
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
