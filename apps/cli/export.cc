// slm export: a model in another form: the execution-ready package, a Hugging Face folder as a GGUF file, or an ONNX file with its weights
// in one file beside it.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/package.h"
#include "checks.h"
#include "export_genai.h"
#include "export_onnx.h"
#include "folder_as_gguf.h"
#include "graph/graph.h"
#include "model/gguf/folder/view.h"
#include "model/model.h"
#include "open_model.h"
#include "output_file.h"
#include "progress.h"
#include "store.h"
#include "verb.h"

namespace slm::cli {
namespace {

struct ExportOptions {
  std::string model, to = "package", out;
  int n_threads = 0, context = 0;
  bool exact = false;
};

Result<backend::PackageReport> WriteFile(const graph::Graph& g, const ExportOptions& o, Io& io) {
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(o.out, io));
  const auto sink = [&](std::span<const std::byte> bytes) { return WriteUnlessCancelled(file, bytes, o.out, io); };
  SLM_ASSIGN_OR_RETURN(backend::PackageReport report, backend::WritePackage(g, ThreadsOr(o.n_threads), sink));
  SLM_RETURN_IF_ERROR(file.Commit());
  return report;
}

Result<int> ExportGguf(std::shared_ptr<model::Model> model, const ExportOptions& o, Io& io) {
  if (model->format != "hf")
    return Error(Code::kInvalidArgument, model->path + ": a " + model->format + " file, no Hugging Face folder",
                 "--to gguf converts folders; slm quantize reads GGUF files");
  SLM_ASSIGN_OR_RETURN(const auto view, FolderAsGguf(std::move(model), o.out, io));
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(o.out, io));
  uint64_t written = 0;
  const auto sink = [&](std::span<const std::byte> bytes) {
    written += bytes.size();
    return WriteUnlessCancelled(file, bytes, o.out, io);
  };
  SLM_RETURN_IF_ERROR(model::gguf::WriteView(*view, sink));
  SLM_RETURN_IF_ERROR(file.Commit());
  if (io.json)
    io.PrintJson({{"files", {o.out}},
                  {"bytes", written},
                  {"tensors", view->tensors.size()},
                  {"lossless", true},
                  {"notes", nlohmann::json::array()}});
  else io.Note(o.out + ": " + std::to_string(view->tensors.size()) + " tensors, " + FormatBytes(written) + ", every value kept exactly");
  return int{kExitOk};
}

Result<int> Export(const ExportOptions& o, Io& io) {
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, o.model));
  SLM_RETURN_IF_ERROR(RefuseModelFile(o.out, path, Neighbours::kShards));
  if (o.to != "genai" && (o.context > 0 || o.exact))
    return Error(Code::kInvalidArgument, "--ctx and --exact are of --to genai", "leave them out");
  if (o.to == "onnx") return ExportOnnx(path, o.out, io);
  SLM_ASSIGN_OR_RETURN(const auto model, model::LoadModel(path));
  if (o.to == "genai") return ExportGenAi(model, {.out = o.out, .context = o.context, .exact = o.exact}, io);
  if (o.to == "gguf") return ExportGguf(model, o, io);
  SLM_ASSIGN_OR_RETURN(graph::Graph g, graph::BuildDecoder(model, {.max_context = 1}));
  SLM_RETURN_IF_ERROR(graph::RunPasses(g, {}));
  auto written = WriteFile(g, o, io);
  if (!written.ok()) return written.error().At(path);
  const backend::PackageReport& r = written.value();
  if (io.json) {
    io.PrintJson({{"files", {o.out}},
                  {"bytes", r.bytes},
                  {"weights_bytes", r.weights_bytes},
                  {"matrices", r.matrices},
                  {"lossless", r.notes.empty()},
                  {"notes", r.notes}});
    return int{kExitOk};
  }
  io.Note(o.out + ": " + std::to_string(r.matrices) + " matrices packed, " + FormatBytes(r.bytes) +
          (r.notes.empty() ? ", every value kept exactly" : ""));
  for (const std::string& note : r.notes) io.Note("lossy: " + note);
  return int{kExitOk};
}

}  // namespace

Body DeclareExport(CLI::App& app, Io& io) {
  auto o = std::make_shared<ExportOptions>();
  app.add_option("MODEL", o->model, "path of a GGUF file, Hugging Face folder or ONNX file, or a name in the store")->required();
  app.add_option("--to", o->to,
                 "package: weights as the CPU kernels read them, mapped at start; gguf: a Hugging Face folder as one file that llama.cpp "
                 "reads too, no value changed; genai: a folder for ONNX Runtime GenAI; onnx: an ONNX file anew, its weights in one aligned "
                 "file beside it")
      ->capture_default_str()
      ->check(CLI::IsMember({"package", "gguf", "genai", "onnx"}));
  app.add_option("-o,--out", o->out, "file to write; genai: folder")->required();
  app.add_option("-c,--ctx", o->context, "genai: most tokens of context; 0: the model's own")->capture_default_str()->check(FromZero());
  app.add_flag("--exact", o->exact, "genai: products with f32 activations (accuracy_level 1), not rounded to int8 (4)");
  AddThreads(app, o->n_threads);
  app.footer(
      "Example:\n  slm export model.gguf --to package -o model.slm\n  slm run model.slm -p \"Hello\"\n  slm export model.gguf --to genai "
      "-o folder");
  return [o, &io] { return Export(*o, io); };
}

}  // namespace slm::cli
