// slm compile: an ONNX file through the compiler of an execution provider, or through OpenVINO's for Intel NPUs, kept in a cache with a
// record of its bytes.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "checks.h"
#include "compile_static.h"
#include "context_cache.h"
#include "npu/compile_npu.h"
#include "onnx/static_folder/static_folder.h"
#include "ort_flags.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct CompileOptions {
  std::string model, device, cache;
  OrtFlags ort;
  NpuRequest npu;
  bool accept_growth = false;
};

std::string CacheOf(const Io& io, const CompileOptions& o) { return o.cache.empty() ? io.store + "/" + kContexts : o.cache; }

Result<int> Compile(Io& io, const CompileOptions& o) {
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(o.ort, 1));
  SLM_ASSIGN_OR_RETURN(const backend::ort::Choice choice, OrtChoice(o.ort, o.device, Fallback::kAllowed));
  SLM_ASSIGN_OR_RETURN(const Context c, CompiledContext(io, *runtime, {.path = o.model, .choice = choice, .cache = CacheOf(io, o)}));
  if (!c.why.empty()) io.Note("made anew: " + c.why);
  if (io.json) {
    io.PrintJson({{"artifacts", c.artifacts},
                  {"cached", c.cached},
                  {"seconds", static_cast<double>(NowNs() - start_ns) / 1e9},
                  {"model", c.model},
                  {"provider", c.provider},
                  {"ep_compatibility_info", c.compatibility},
                  {"made_anew", c.why.empty() ? ordered_json(nullptr) : ordered_json(c.why)}});
    return int{kExitOk};
  }
  io.Print(c.model + "\n");
  io.Note(std::string(c.cached ? "from the cache" : "compiled") + " by " + c.provider +
          (c.compatibility.empty() ? "" : ", " + c.compatibility));
  return int{kExitOk};
}

Result<int> CompileWith(Io& io, const CompileOptions& o) {
  if (o.device.empty() == o.npu.target.empty())
    return Error(Code::kInvalidArgument, "slm compile needs --device or --target",
                 "--device takes execution providers, --target an Intel NPU");
  if (!o.device.empty() && onnx::IsStaticFolder(o.model))
    return CompileStatic(io, {.folder = o.model, .device = o.device, .cache = CacheOf(io, o), .ort = o.ort});
  if (!o.device.empty()) return Compile(io, o);
  NpuRequest r = o.npu;
  r.model = o.model;
  r.cache = CacheOf(io, o);
  r.growth = o.accept_growth ? Growth::kAccepted : Growth::kRefused;
  return CompileForNpu(io, r);
}

}  // namespace

Body DeclareCompile(CLI::App& app, Io& io) {
  auto o = std::make_shared<CompileOptions>();
  app.add_option("FILE", o->model, "ONNX file, or a folder of slm export --to qdq, all its graphs")->required();
  app.add_option("--device", o->device, "npu, gpu, or the name of an execution provider; the first that is there compiles");
  app.add_option("--cache", o->cache, "folder to keep what was compiled in (default: contexts in the store)");
  AddOrtFlags(app, o->ort);
  const char* npu = "Intel NPU";
  app.add_option("--target", o->npu.target, "openvino-npu-3720, -4000 or -5010: OpenVINO's compiler, which needs no device")->group(npu);
  app.add_option("--compiler", o->npu.compiler, "its folder (default: SLM_OPENVINO_NPU, then what ./dev openvino-npu installed)")
      ->group(npu);
  app.add_option("--limit", o->npu.limit_s, "most seconds for one graph")->capture_default_str()->check(FromZero())->group(npu);
  app.add_option("--against", o->npu.against, "record to compare with (default: compiled.json of the folder)")->group(npu);
  app.add_flag("--accept-growth", o->accept_growth, "takes over blobs and estimates that are over 10 % larger than the record's")
      ->group(npu);
  app.footer(
      "Prints the path of each compiled file. The same file, provider, options and versions are compiled once; a kept file whose bytes\n"
      "are not those that were written is compiled again. Of a folder every graph is tried, and slm run FOLDER with the same device and\n"
      "options loads what was compiled.\n\n"
      "Example:\n  slm compile model.onnx --device QNNExecutionProvider --ep-library QNNExecutionProvider=PATH \\\n"
      "    --ep-option backend_type=htp --ep-option soc_model=60\n"
      "  slm compile FOLDER --target openvino-npu-4000\n\n"
      "Exit code 1: a graph was refused; each is reported. 3: a blob or the compiler's own estimate of its latency grew by more than\n"
      "10 % against the record.");
  return [o, &io]() -> Result<int> { return CompileWith(io, *o); };
}

}  // namespace slm::cli
