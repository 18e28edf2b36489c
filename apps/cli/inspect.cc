// slm inspect: what is in a model file, and what running it would take.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "checks.h"
#include "inspect_report.h"
#include "store.h"
#include "verb.h"

namespace slm::cli {
namespace {

struct InspectOptions {
  std::string model;
  int context = 0;
};

Result<int> Inspect(const InspectOptions& options, Io& io) {
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, options.model));
  SLM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report, InspectModel(path, options.context));
  if (io.json) io.PrintJson(report);
  else io.Print(InspectText(report));
  return int{kExitOk};
}

}  // namespace

Body DeclareInspect(CLI::App& app, Io& io) {
  auto options = std::make_shared<InspectOptions>();
  app.add_option("MODEL", options->model, "path of a model or its name in the store")->required();
  app.add_option("-c,--ctx", options->context, "tokens of the memory plan; 0: the model's own, at most the default of slm run")
      ->capture_default_str()
      ->check(FromZero());
  app.footer("--json lists every tensor.\n\nExample:\n  slm inspect smollm2-135m-instruct --ctx 2048");
  return [options, &io]() -> Result<int> { return Inspect(*options, io); };
}

}  // namespace slm::cli
