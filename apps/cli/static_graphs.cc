// See static_graphs.h.
#include "static_graphs.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiled_record.h"
#include "context_cache.h"
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
  const ort::ProviderOption wanted[] = {
      // Inputs and outputs are integers already: what is around them belongs on the device too.
      {"QNNExecutionProvider", "offload_graph_io_quantization", "0"},
      // Blocks of 4 bits stay 4 bits.
      {"QNNExecutionProvider", "enable_block_quant_weight_optimization", "1"},
  };
  choice.options.insert(choice.options.begin(), std::begin(wanted), std::end(wanted));
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

GraphContext FindGraphContext(const Io& io, const ort::Runtime& runtime, const ort::Choice& choice, const onnx::StaticFolder& folder,
                              const onnx::Model& graph, const KnownSums& sums) {
  const auto origin = ContextOrigin(runtime, choice, graph, graph.path, sums);
  if (!origin.ok()) return {};
  const std::string file = std::filesystem::path(graph.path).filename().string();
  FoundContext found = FindContext(runtime, choice, origin.value(), {folder.path + "/contexts", io.store + "/contexts"});
  GraphContext out{file, found.model, ""};
  if (!out.context.empty()) return out;
  if (!found.why.empty()) {
    out.why = found.why[0];
    return out;
  }
  const auto record = ReadCompiled(folder.path + "/" + kCompiledFile);
  out.why = record.ok() ? WhyNone(record.value(), file, origin.value()) : record.error().message();
  return out;
}

}  // namespace slm::cli
