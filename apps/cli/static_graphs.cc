// See static_graphs.h.
#include "static_graphs.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiled_record.h"
#include "context_cache.h"
#include "exporter/qdq/qdq.h"
#include "fetch/digest.h"
#include "ort_flags.h"

namespace slm::cli {
namespace {

namespace ort = backend::ort;
using nlohmann::json;
using nlohmann::ordered_json;

// Of what compiled.json lists for this file and provider, the nearest: why it does not serve.
std::string WhyNone(const json& record, const std::string& file, const ordered_json& origin) {
  std::vector<std::string> nearest;
  bool any = false;
  const json targets = record.is_object() ? record["targets"] : json::object();
  for (const auto& [target, rows] : targets.items()) {
    for (const json& row : RowsIn(record, target)) {
      if (!row.is_object() || row.value("file", json()) != file || !row.value("origin", json()).is_object()) continue;
      if (row["origin"].value("provider", json()) != json(origin["provider"])) continue;
      const std::vector<std::string> differences = DifferencesOf(origin, row["origin"]);
      if (!any || differences.size() < nearest.size()) nearest = differences;
      any = true;
    }
  }
  if (!any) return "";
  if (nearest.empty()) return file + ": what was compiled of it is in no cache here";
  return file + ": was compiled with " + nearest[0];
}

}  // namespace

Result<ort::Choice> StaticChoice(const OrtFlags& flags, const std::string& device, Fallback fallback) {
  SLM_ASSIGN_OR_RETURN(ort::Choice choice, OrtChoice(flags, device, fallback));
  std::vector<ort::ProviderOption> options;
  for (const exporter::QnnOption& o : exporter::kQnnOptions) options.push_back({"QNNExecutionProvider", o.key, o.value});
  options.insert(options.end(), choice.options.begin(), choice.options.end());
  choice.options = std::move(options);
  return choice;
}

Result<KnownSums> CheckSums(const onnx::StaticFolder& f) {
  KnownSums sums;
  for (const auto& [name, sum] : f.manifest.sha256) {
    SLM_ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(f.path + "/" + name));
    if (found != sum)
      return Error(Code::kCorrupt, f.path + "/" + name + ": is not the file that was exported: its SHA-256 is not the manifest's",
                   "export the folder again");
    sums[name] = sum;
  }
  return sums;
}

Status CheckExternalData(const onnx::StaticFolder& f, const onnx::Model& graph, const KnownSums& sums) {
  for (const onnx::ExternalFile& e : graph.external_files)
    if (!sums.contains(e.name))
      return Error(Code::kCorrupt,
                   f.path + "/manifest.json: \"files\" has no sum of " + e.name + ", which " +
                       std::filesystem::path(graph.path).filename().string() + " reads",
                   "export the folder again");
  return Ok();
}

GraphContext FindGraphContext(const Io& io, const ort::Runtime& runtime, const ort::Choice& choice, const onnx::Model& graph,
                              const KnownSums& sums) {
  const auto origin = ContextOrigin(runtime, choice, graph, sums);
  if (!origin.ok()) return {};
  const std::filesystem::path path = graph.path;
  const std::string file = path.filename().string(), folder = path.parent_path().string();
  const FoundContext found = FindContext(runtime, choice, origin.value(), {folder + "/" + kContexts, io.store + "/" + kContexts});
  if (found.context) return {file, found.context->model, ""};
  if (!found.why.empty()) return {file, "", found.why};
  const auto record = ReadCompiled(folder + "/" + kCompiledFile);
  return {file, "", record.ok() ? WhyNone(record.value(), file, origin.value()) : record.error().message()};
}

}  // namespace slm::cli
