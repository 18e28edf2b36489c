// slm check: can a target compute this graph, operator by operator, and what would it cost?
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "check_report.h"
#include "checks.h"
#include "export_genai.h"
#include "importer/importer.h"
#include "legalize/legalize.h"
#include "load_decoder.h"
#include "model/model.h"
#include "onnx/genai/genai.h"
#include "onnx/onnx.h"
#include "onnx/static_folder/static_folder.h"
#include "open_model.h"
#include "store.h"
#include "target_flags.h"
#include "verb.h"

namespace slm::cli {
namespace {

struct CheckCommand {
  std::string model, target;
  std::vector<std::string> dims;
  int context = 0;
  bool no_fallback = false, list = false;
};

struct NamedGraph {
  std::string name;
  onnx::Model model;
  std::vector<std::string> notes;  // of the exporter
};
using Graphs = std::vector<NamedGraph>;

// What `slm export --to genai` would write.
Result<NamedGraph> AsExported(const std::string& path, int& context) {
  SLM_ASSIGN_OR_RETURN(std::shared_ptr<const model::Model> m, model::LoadModel(path));
  SLM_RETURN_IF_ERROR(RefusePackage(*m));
  const int own = m->config.max_context > 0 ? m->config.max_context : kDefaultContext;
  context = context > 0 ? std::min(context, own) : own;
  SLM_ASSIGN_OR_RETURN(exporter::GenAiModel built, GenAiModelOf(std::move(m), context, exporter::Accuracy::kInt8));
  return NamedGraph{"as slm export --to genai writes it", std::move(built.model), std::move(built.notes)};
}

Result<Graphs> ReadGraphs(const std::string& path, int& context) {
  Graphs out;
  if (onnx::IsStaticFolder(path)) {
    SLM_ASSIGN_OR_RETURN(const onnx::StaticFolder folder, onnx::ReadStaticFolder(path));
    if (context == 0) context = folder.manifest.context;
    for (const onnx::StaticGraphFile& g : folder.manifest.graphs) {
      SLM_ASSIGN_OR_RETURN(onnx::Model m, onnx::ReadModel((std::filesystem::path(path) / g.name).string()));
      out.push_back({g.name, std::move(m), {}});
    }
  } else if (onnx::IsGenAiFolder(path)) {
    SLM_ASSIGN_OR_RETURN(const onnx::GenAiConfig config, onnx::ReadGenAiConfig(path));
    if (context == 0) context = config.context_length;
    for (const onnx::GenAiFile& f : config.files) {
      SLM_ASSIGN_OR_RETURN(onnx::Model m, onnx::ReadModel((std::filesystem::path(path) / f.name).string()));
      out.push_back({f.name, std::move(m), {}});
    }
  } else if (importer::IsOnnxModel(path)) {
    SLM_ASSIGN_OR_RETURN(const std::string file, importer::GraphFile(path));
    SLM_ASSIGN_OR_RETURN(onnx::Model m, onnx::ReadModel(file));
    out.push_back({std::filesystem::path(file).filename().string(), std::move(m), {}});
  } else {
    SLM_ASSIGN_OR_RETURN(NamedGraph g, AsExported(path, context));
    out.push_back(std::move(g));
  }
  return out;
}

// A dimension that no graph has is a mistake; of a pipeline's graphs each has its own.
Status CheckDims(const std::map<std::string, int64_t>& dims, const std::vector<CheckedGraph>& graphs) {
  for (const auto& [name, n] : dims) {
    const auto lacks = [&dim = name](const CheckedGraph& g) {
      return std::find(g.report.unknown_dims.begin(), g.report.unknown_dims.end(), dim) != g.report.unknown_dims.end();
    };
    if (!std::all_of(graphs.begin(), graphs.end(), lacks)) continue;
    std::string known;
    for (const CheckedGraph& g : graphs)
      for (const std::string& d : g.report.open_dims) known += (known.empty() ? "" : ", ") + d;
    return Error(Code::kInvalidArgument, "--dim " + name + ": no open dimension of that name",
                 known.empty() ? "the model has none" : "open: " + known);
  }
  return Ok();
}

Result<int> ListTargets(Io& io) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string text;
  for (const std::string& name : targets::TargetNames()) {
    SLM_ASSIGN_OR_RETURN(const targets::Target t, targets::FindTarget(name));
    list.push_back({{"name", name}, {"title", t.title()}});
    text += name + std::string(name.size() < 20 ? 20 - name.size() : 1, ' ') + t.title() + "\n";
  }
  if (io.json) io.PrintJson({{"targets", list}});
  else io.Print(text);
  return int{kExitOk};
}

// Which of the refused operators `slm legalize` would rewrite for the target: an operator counts when all of its nodes do, a sample of them
// where they are many.
Status AddRewrites(const onnx::Model& model, const targets::Target& target, const std::map<std::string, int64_t>& dims,
                   targets::Report& report) {
  const auto sample = [](const targets::OpFinding& f) {
    const size_t n = std::min<size_t>(4, f.nodes.size());
    std::vector<std::string> out;
    for (size_t k = 0; k < n; ++k) out.push_back(f.nodes[k * f.nodes.size() / n]);
    return out;
  };
  std::vector<std::string> nodes;
  for (const targets::OpFinding& f : report.ops)
    if (f.verdict == targets::Verdict::kFallback || f.verdict == targets::Verdict::kBlocked)
      for (std::string& node : sample(f)) nodes.push_back(std::move(node));
  if (nodes.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const auto rewrites, legalize::Rewritable(model, target, {.dims = dims}, nodes));
  for (targets::OpFinding& f : report.ops) {
    const auto asked = sample(f);
    if (asked.empty() || !std::all_of(asked.begin(), asked.end(), [&](const std::string& n) { return rewrites.contains(n); })) continue;
    f.applied_by = "slm legalize";
    if (f.replacement.empty()) f.replacement = rewrites.at(asked[0]);
  }
  return Ok();
}

Result<int> RunCheck(const CheckCommand& c, Io& io) {
  if (c.list) return ListTargets(io);
  if (c.model.empty() || c.target.empty())
    return Error(Code::kInvalidArgument, c.model.empty() ? "no MODEL" : "no --target",
                 "slm check MODEL --target NAME; slm check --list-targets");
  SLM_ASSIGN_OR_RETURN(const auto dims, ReadDims(c.dims));
  SLM_ASSIGN_OR_RETURN(const targets::Target target, ReadTarget(c.target, io));
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, c.model));
  int context = c.context;
  SLM_ASSIGN_OR_RETURN(const Graphs graphs, ReadGraphs(path, context));
  std::vector<CheckedGraph> checked;
  bool blocked = false;
  int64_t n_fallback = 0;
  for (const NamedGraph& g : graphs) {
    auto report = targets::Check(g.model, target, {.dims = dims, .context = context});
    if (!report.ok()) return report.error().At(g.name);
    blocked |= report.value().blocked();
    n_fallback += report.value().n_fallback;
    if (const Status s = AddRewrites(g.model, target, dims, report.value()); !s.ok()) return s.error().At(g.name);
    report.value().notes = g.notes;
    checked.push_back({g.name, report.Take()});
  }
  SLM_RETURN_IF_ERROR(CheckDims(dims, checked));
  if (io.json) io.PrintJson(CheckJson(c.model, checked));
  else io.Print(CheckText(c.model, checked));
  return int{blocked || (c.no_fallback && n_fallback > 0) ? kExitGate : kExitOk};
}

}  // namespace

Body DeclareCheck(CLI::App& app, Io& io) {
  auto c = std::make_shared<CheckCommand>();
  app.add_option("MODEL", c->model,
                 "ONNX file, GenAI folder, or a model (path or name in the store), checked as slm export --to genai writes it");
  app.add_option("--target", c->target, "name of a target, or a .json file that describes one");
  app.add_flag("--list-targets", c->list, "prints the names of the targets");
  app.add_option("--dim", c->dims, "NAME=N: checks as if the open dimension NAME were N (repeatable)")->allow_extra_args(false);
  app.add_option("-c,--ctx", c->context, "tokens of the KV cache; 0: the model's own")->capture_default_str()->check(FromZero());
  app.add_flag("--no-fallback", c->no_fallback, "exit 3 also when an operator would run on another device");
  app.footer(
      "Exit code 3: something is blocked (or too large).\n\nExample:\n  slm check model.onnx --target qnn-htp-v75\n  slm check "
      "smollm2-135m-instruct "
      "--target webgpu --json");
  return [c, &io] { return RunCheck(*c, io); };
}

}  // namespace slm::cli
