// slm verify: golden answers of a package recorded once, then every artefact of it judged against them, for a build server.
#include <CLI/CLI.hpp>
#include <memory>

#include "checks.h"
#include "open_model.h"
#include "verb.h"
#include "verify/judge.h"
#include "verify/package.h"
#include "verify/record.h"

namespace slm::cli {
namespace {

Result<int> Run(Io& io, const VerifyOptions& o) {
  if (!o.record && (!o.base.empty() || !o.prompts.empty() || o.max_kld))
    return Error(Code::kInvalidArgument, "--base, --prompts and --max-kld are of --record",
                 "leave them out: they are in the golden answers");
  SLM_ASSIGN_OR_RETURN(const Package package, FindPackage(o, io));
  return o.record ? RecordPackage(io, o, package) : JudgePackage(io, o, package);
}

}  // namespace

Body DeclareVerify(CLI::App& app, Io& io) {
  auto o = std::make_shared<VerifyOptions>();
  app.add_option("PACKAGE", o->package, "model, or folder of models that were made from one")->required();
  app.add_flag("--record", o->record, "write the golden answers instead of comparing with them");
  app.add_option("--golden", o->golden,
                 "file of the golden answers (default: golden.json in the folder, MODEL.golden.json beside a model)");
  app.add_option("--base", o->base, "with --record: model that gives the answers, in f32 (default: the package's first model)");
  app.add_option("--prompts", o->prompts, "with --record: lines of {\"text\"} or {\"messages\"} (default: built-in ones)");
  app.add_option("--tokens", o->n_steps, "with --record: tokens of each answer")->check(CLI::Range(2, 4096))->capture_default_str();
  app.add_option("--top", o->n_top, "with --record: most probable tokens that are kept of each step")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--max-kld", o->max_kld, "with --record: most mean KLD, nats a step (default: twice what is measured, at least 0.002)")
      ->check(NumberFromZero());
  app.add_option("--latency-slack", o->slack, "share by which the 95th percentile of a step may be slower than recorded")
      ->check(NumberFromZero())
      ->capture_default_str();
  app.add_flag("--no-latency", o->no_latency, "do not judge times");
  app.add_flag("--no-skip", o->no_skip, "an artefact that this machine cannot run is a failure");
  AddThreads(app, o->n_threads);
  AddMemory(app, o->memory);
  app.footer(
      "Exit code 3 when an artefact fails. Times are judged only on the CPU, kernels and threads that they were recorded with.\n\n"
      "Example:\n  slm verify release/ --record --base model-f16.gguf\n  slm verify release/");
  return [o, &io]() -> Result<int> { return Run(io, *o); };
}

}  // namespace slm::cli
