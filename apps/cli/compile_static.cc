// See compile_static.h.
#include "compile_static.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "compiled_record.h"
#include "context_cache.h"
#include "ort_flags.h"
#include "output_file.h"
#include "static_graphs.h"

namespace slm::cli {
namespace {

namespace ort = backend::ort;
using nlohmann::ordered_json;

// What a row of compiled.json stands under: the provider and its options.
std::string TargetOf(const ordered_json& origin) {
  std::string out = origin["provider"];
  for (const auto& [key, value] : origin["options"].items()) out += " " + key + "=" + value.get<std::string>();
  return out;
}

// A graph as a row of compiled.json.
ordered_json RowOf(const onnx::StaticGraphFile& graph, const Context& c) {
  uint64_t bytes = 0;
  for (const std::string& file : c.artifacts)
    if (!file.ends_with(kRecordFile)) bytes += BytesOf(file);
  return {{"file", graph.name},
          {"tokens", graph.tokens},
          {"context", std::filesystem::path(c.model).parent_path().filename().string()},
          {"bytes", bytes},
          {"ep_compatibility_info", c.compatibility},
          {"origin", c.origin}};
}

struct Outcome {
  ordered_json listed = ordered_json::array(), printed = listed, refused = listed;
  std::string target;
};

// Not about the graph: the next one would fail as well.
bool IsOfTheMachine(Code code) { return code == Code::kIo || code == Code::kUnavailable || code == Code::kLimit; }

Status CompileGraph(Io& io, const ort::Runtime& runtime, const ContextRequest& r, const onnx::StaticGraphFile& graph, Outcome& o) {
  const auto made = CompiledContext(io, runtime, r);
  if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
  if (!made.ok() && IsOfTheMachine(made.error().code())) return made.error();
  if (!made.ok()) {
    o.refused.push_back(RefusedRow(io, graph.name, graph.tokens, made.error()));
    return Ok();
  }
  const Context& c = made.value();
  o.target = TargetOf(c.origin);
  ordered_json row = RowOf(graph, c);
  o.listed.push_back(row);
  row["model"] = c.model;
  row["artifacts"] = c.artifacts;
  row["cached"] = c.cached;
  row["made_anew"] = c.why.empty() ? ordered_json(nullptr) : ordered_json(c.why);
  o.printed.push_back(std::move(row));
  if (io.json) return Ok();
  io.Print(c.model + "\n");
  if (!c.why.empty()) io.Note("made anew: " + c.why);
  io.Note(graph.name + ": " + (c.cached ? "from the cache, " : "compiled by ") + c.provider +
          (c.compatibility.empty() ? "" : ", " + c.compatibility));
  return Ok();
}

}  // namespace

Result<int> CompileStatic(Io& io, const StaticRequest& r) {
  const int64_t start_ns = NowNs();
  SLM_ASSIGN_OR_RETURN(const onnx::StaticFolder folder, onnx::ReadStaticFolder(r.folder));
  SLM_ASSIGN_OR_RETURN(const KnownSums sums, CheckSums(folder));
  const std::string place = r.folder + "/" + kCompiledFile;
  if (const auto listed = ReadCompiled(place); !listed.ok()) return listed.error();  // before an hour of compiling
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(r.ort, 1));
  SLM_ASSIGN_OR_RETURN(const ort::Choice choice, StaticChoice(r.ort, r.device, Fallback::kAllowed));
  SLM_ASSIGN_OR_RETURN(const ort::Provider provider, FirstProvider(*runtime, choice));
  Outcome o;
  ContextRequest request{.path = "", .choice = choice, .cache = r.cache, .sums = sums};
  for (const onnx::StaticGraphFile& graph : folder.manifest.graphs) {
    request.path = r.folder + "/" + graph.name;
    SLM_RETURN_IF_ERROR(CompileGraph(io, *runtime, request, graph, o));
  }
  if (!o.listed.empty()) SLM_RETURN_IF_ERROR(WriteCompiled(place, o.target, o.listed, io));
  for (const auto& row : o.refused) o.printed.push_back(row);
  if (io.json)
    io.PrintJson({{"provider", provider.name}, {"graphs", o.printed}, {"seconds", static_cast<double>(NowNs() - start_ns) / 1e9}});
  return int{o.refused.empty() ? kExitOk : kExitFailed};
}

}  // namespace slm::cli
