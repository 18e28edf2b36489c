// slm compile: an ONNX file through the compiler of an execution provider, kept in a cache with a record of its bytes.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "context_cache.h"
#include "ort_flags.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct CompileOptions {
  std::string model, device, cache;
  OrtFlags ort;
};

Result<int> Compile(Io& io, const CompileOptions& o) {
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(o.ort, 1));
  SLM_ASSIGN_OR_RETURN(const backend::ort::Choice choice, OrtChoice(o.ort, o.device, Fallback::kAllowed));
  SLM_ASSIGN_OR_RETURN(const Context c, CompiledContext(io, *runtime, o.model, choice, o.cache.empty() ? io.store + "/contexts" : o.cache));
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

}  // namespace

Body DeclareCompile(CLI::App& app, Io& io) {
  auto o = std::make_shared<CompileOptions>();
  app.add_option("FILE", o->model, "ONNX file")->required();
  app.add_option("--device", o->device, "npu, gpu, or the name of an execution provider; the first that is there compiles")->required();
  app.add_option("--cache", o->cache, "folder to keep what was compiled in (default: contexts in the store)");
  AddOrtFlags(app, o->ort);
  app.footer(
      "Prints the path of the compiled file. The same file, provider, options and versions are compiled once; a kept file whose bytes are "
      "not\n"
      "those that were written is compiled again.\n\n"
      "Example:\n  slm compile model.onnx --device QNNExecutionProvider --ep-library QNNExecutionProvider=PATH \\\n"
      "    --ep-option backend_type=htp --ep-option soc_model=60");
  return [o, &io]() -> Result<int> { return Compile(io, *o); };
}

}  // namespace slm::cli
