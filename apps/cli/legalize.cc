// slm legalize: an ONNX graph rewritten for a target, with what was done and what stays.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "export_onnx.h"
#include "legalize/legalize.h"
#include "legalize_report.h"
#include "onnx/onnx.h"
#include "target_flags.h"
#include "verb.h"

namespace slm::cli {
namespace {

struct LegalizeCommand {
  std::string model, target, out;
  std::vector<std::string> dims;
  bool no_fallback = false;
};

Result<int> RunLegalize(const LegalizeCommand& c, Io& io) {
  SLM_ASSIGN_OR_RETURN(const auto dims, ReadDims(c.dims));
  SLM_ASSIGN_OR_RETURN(const targets::Target target, ReadTarget(c.target, io));
  SLM_ASSIGN_OR_RETURN(onnx::Model read, onnx::ReadModel(c.model));
  auto model = std::make_shared<const onnx::Model>(std::move(read));
  auto done = legalize::Legalize(std::move(model), target, {.dims = dims});
  if (!done.ok()) return done.error().At(c.model);
  const legalize::Report& report = done.value().report;
  SLM_ASSIGN_OR_RETURN(const OnnxFiles files, WriteOnnx(done.value().model, c.model, c.out, io));
  if (io.json) {
    nlohmann::ordered_json document = LegalizeJson(c.model, report);
    document["files"] = files.paths;
    io.PrintJson(document);
  } else {
    io.Print(LegalizeText(c.model, report));
    io.Note(OnnxFilesText(files));
  }
  return int{report.after.blocked > 0 || (c.no_fallback && report.after.fallback > 0) ? kExitGate : kExitOk};
}

}  // namespace

Body DeclareLegalize(CLI::App& app, Io& io) {
  auto c = std::make_shared<LegalizeCommand>();
  app.add_option("MODEL", c->model, "ONNX file")->required();
  app.add_option("--target", c->target, "name of a target (slm check --list-targets), or a .json file that describes one")->required();
  app.add_option("-o,--out", c->out, "the ONNX file to write; large tensors go into one beside it, with .data behind its name")->required();
  app.add_option("--dim", c->dims, "NAME=N: the open dimension NAME becomes N (repeatable)")->allow_extra_args(false);
  app.add_flag("--no-fallback", c->no_fallback, "exit 3 also when an operator would still run on another device");
  app.footer(
      "Exit code 3: something is still blocked.\n\nExample:\n  slm legalize model.onnx --target qnn-htp-v73 --dim batch_size=1 --dim "
      "sequence_length=1 --dim past_sequence_length=511 --dim total_sequence_length=512 -o static.onnx");
  return [c, &io] { return RunLegalize(*c, io); };
}

}  // namespace slm::cli
