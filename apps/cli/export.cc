// slm export: a model in another form: the execution-ready package, a Hugging Face folder as a GGUF file, or an ONNX file with its weights
// in one file beside it.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cpu/package.h"
#include "checks.h"
#include "export_genai.h"
#include "export_onnx.h"
#include "export_qdq.h"
#include "folder_as_gguf.h"
#include "graph/graph.h"
#include "load_decoder.h"
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
  QdqRequest qdq;
  bool qdq_is_given = false;  // one of its own options
  std::string recipe = "npu";
  bool print_recipe = false;
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
  if (o.print_recipe && o.to == "qdq") {
    io.Print(QdqRecipeJson(o.qdq).dump(2) + "\n");
    return int{kExitOk};
  }
  if (o.model.empty() || o.out.empty()) return Error(Code::kInvalidArgument, "a MODEL and -o OUT are needed", "slm export --help");
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, o.model));
  SLM_RETURN_IF_ERROR(RefuseModelFile(o.out, path, Neighbours::kShards));
  if (o.to != "genai" && o.exact) return Error(Code::kInvalidArgument, "--exact is of --to genai", "leave it out");
  if (o.to != "genai" && o.to != "qdq" && o.context > 0)
    return Error(Code::kInvalidArgument, "--ctx is of --to genai and --to qdq", "leave it out");
  if (o.to != "qdq" && (o.qdq_is_given || o.qdq.calibration.is_given))
    return Error(Code::kInvalidArgument,
                 "--recipe, --print-recipe, --weights, --chunk, --decode-tokens, --key-rotation, --activations, --range-margin and "
                 "calibration are of "
                 "--to qdq",
                 "leave them out");
  if (o.to == "onnx") return ExportOnnx(path, o.out, io);
  SLM_ASSIGN_OR_RETURN(const auto model, model::LoadModel(path));
  SLM_RETURN_IF_ERROR(RefusePackage(*model));
  if (o.to == "genai") return ExportGenAi(model, {.out = o.out, .context = o.context, .exact = o.exact}, io);
  if (o.to == "qdq") {
    QdqRequest request = o.qdq;
    request.out = o.out;
    request.context = o.context;
    request.n_threads = o.n_threads;
    return ExportQdq(model, request, io);
  }
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

void AddQdq(CLI::App& app, ExportOptions& o) {
  const auto add = [&](CLI::Option* option) { option->group("qdq")->each([&o](const std::string&) { o.qdq_is_given = true; }); };
  CLI::Option* weights = app.add_option("--weights", o.qdq.weights,
                                        "w4-g32: 4 bits in blocks of 32 (LPBQ); w4-channel: a scale a row; both with 8 bits for the head "
                                        "and down projections; w8: 8 bits, a scale a row; f32: nothing is quantized");
  add(app.add_option("--recipe", o.recipe,
                     "npu: symmetric 4 bits in blocks, 8 for the head and down projections, static 16-bit activations")
          ->capture_default_str()
          ->check(CLI::IsMember({"npu"})));
  add(app.add_flag("--print-recipe", o.print_recipe, "prints the recipe with all choices, as JSON, and ends"));
  add(weights->capture_default_str()->check(CLI::IsMember(std::vector<std::string>(std::begin(kQdqWeights), std::end(kQdqWeights)))));
  add(app.add_option("--chunk", o.qdq.chunk, "tokens of the prefill graph")
          ->capture_default_str()
          ->check(CLI::IsMember({32, 64, 128, 256})));
  add(app.add_option("--decode-tokens", o.qdq.decode,
                     "tokens of the decode graph, for compilers that fail at one; a call needs not fill them")
          ->capture_default_str()
          ->check(CLI::IsMember({1, 2, 4, 8})));
  add(app.add_option("--key-rotation", o.qdq.keys,
                     "columns: keys are transposed before they are rotated, which NPU 3720 needs; rows: after")
          ->capture_default_str()
          ->check(CLI::IsMember(std::vector<std::string>(std::begin(kKeyRotations), std::end(kKeyRotations)))));
  add(app.add_option("--activations", o.qdq.activation_bits, "bits of activations")->capture_default_str()->check(CLI::IsMember({8, 16})));
  add(app.add_option("--range-margin", o.qdq.margin, "ranges of activations are this much wider than calibration finds them")
          ->capture_default_str()
          ->check(NumberIn(1, 16)));
  AddCalibration(app, o.qdq.calibration);
}

}  // namespace

Body DeclareExport(CLI::App& app, Io& io) {
  auto o = std::make_shared<ExportOptions>();
  app.add_option("MODEL", o->model, "path of a GGUF file, Hugging Face folder or ONNX file, or a name in the store");
  app.add_option("--to", o->to,
                 "package: weights as the CPU kernels read them, mapped at start; gguf: a Hugging Face folder as one file that llama.cpp "
                 "reads too, no value changed; genai: a folder for ONNX Runtime GenAI; qdq: a folder with graphs of fixed shapes for NPUs; "
                 "onnx: an ONNX file anew, its weights in one aligned file beside it")
      ->capture_default_str()
      ->check(CLI::IsMember({"package", "gguf", "genai", "qdq", "onnx"}));
  app.add_option("-o,--out", o->out, "file to write; genai, qdq: folder");
  app.add_option("-c,--ctx", o->context, "most tokens of context; 0: genai: the model's own, qdq: 2048")
      ->capture_default_str()
      ->check(FromZero());
  app.add_flag("--exact", o->exact, "genai: products with f32 activations (accuracy_level 1), not rounded to int8 (4)");
  AddQdq(app, *o);
  AddThreads(app, o->n_threads);
  app.footer(
      "Example:\n  slm export model.gguf --to package -o model.slm\n  slm run model.slm -p \"Hello\"\n  slm export model.gguf --to genai "
      "-o folder\n  slm export model.gguf --to qdq -o folder --ctx 1024");
  return [o, &io] { return Export(*o, io); };
}

}  // namespace slm::cli
