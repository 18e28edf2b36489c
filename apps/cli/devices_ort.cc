// See devices_ort.h.
#include "devices_ort.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "context_cache.h"
#include "onnx/onnx.h"
#include "ort_flags.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

// Nodes by operator and provider, with the names of those that the CPU got although another was asked for.
ordered_json OpsOf(const backend::ort::Placed& placed) {
  ordered_json ops = ordered_json::array();
  for (const auto& n : placed.nodes) {
    ordered_json* row = nullptr;
    for (ordered_json& each : ops)
      if (each["op"] == n.op && each["provider"] == n.provider) row = &each;
    if (!row) {
      ops.push_back({{"op", n.op},
                     {"domain", n.domain},
                     {"count", 0},
                     {"provider", n.provider},
                     {"device", n.device},
                     {"names", ordered_json::array()}});
      row = &ops.back();
    }
    (*row)["count"] = (*row)["count"].get<int>() + 1;
    (*row)["names"].push_back(n.name);
  }
  return ops;
}

}  // namespace

void AddOrtDevices(CLI::App& app, OrtDevicesOptions& o) {
  const char* group = "ONNX Runtime";
  AddOrtFlags(app, o.flags);
  auto* place = app.add_option("--place", o.place, "ONNX file: says on which execution provider each of its nodes would run")->group(group);
  app.add_option("--device", o.device, "of --place, best first: auto, or npu, gpu, cpu, names of execution providers, with commas between")
      ->capture_default_str()
      ->needs(place)
      ->group(group);
  app.add_flag_callback(
         "--no-fallback", [&o] { o.fallback = Fallback::kForbidden; }, "of --place: exit 3 when a node is left to the CPU, naming it")
      ->needs(place)
      ->group(group);
}

Result<ordered_json> DescribeOrt(const OrtDevicesOptions& o) {
  const auto runtime = OpenOrtRuntime(o.flags, 1);
  const bool asked = !o.flags.runtime.empty() || !o.flags.providers.empty();
  if (!runtime.ok() && runtime.error().code() == Code::kUnavailable && !asked) return ordered_json(nullptr);
  if (!runtime.ok()) return runtime.error();
  const backend::ort::RuntimeInfo info = Describe(*runtime.value());
  ordered_json providers = ordered_json::array();
  for (const auto& p : info.providers)
    providers.push_back({{"name", p.name}, {"device", p.device}, {"vendor", p.vendor}, {"version", p.version}, {"library", p.file}});
  return ordered_json{{"backend", "ort"}, {"version", info.version}, {"api", info.api}, {"path", info.path}, {"providers", providers}};
}

std::string OrtText(const ordered_json& j) {
  if (j.is_null()) return "onnxruntime  not here; ./dev ort fetches it\n";
  std::string text =
      fmt::format("onnxruntime  {} (API {}), {}\n", j["version"].get<std::string>(), j["api"].get<int>(), j["path"].get<std::string>());
  for (const auto& p : j["providers"])
    text += fmt::format("  {:<4} {:<28} {} {}\n", p["device"].get<std::string>(), p["name"].get<std::string>(),
                        p["vendor"].get<std::string>(), p["version"].get<std::string>());
  return text;
}

Result<ordered_json> PlaceOnnx(const OrtDevicesOptions& o) {
  // Our own reader first: it checks what a stranger's file could do with sizes, names and paths.
  SLM_ASSIGN_OR_RETURN(const onnx::Model read, onnx::ReadModel(o.place));
  SLM_ASSIGN_OR_RETURN(const auto runtime, OpenOrtRuntime(o.flags, 1));
  SLM_ASSIGN_OR_RETURN(const backend::ort::Choice choice, OrtChoice(o.flags, o.device, o.fallback));
  SLM_RETURN_IF_ERROR(CheckContexts(read, *runtime, choice));
  SLM_ASSIGN_OR_RETURN(const backend::ort::Placed placed, PlaceNodes(runtime, o.place, choice));
  ordered_json providers = ordered_json::object();
  for (const auto& n : placed.nodes) providers[n.provider] = providers.value(n.provider, 0) + 1;
  return ordered_json{{"model", o.place},       {"nodes", placed.nodes.size()}, {"nodes_in_file", read.graph.nodes.size()},
                      {"providers", providers}, {"ops", OpsOf(placed)},         {"notes", placed.notes}};
}

std::string PlaceText(const ordered_json& j) {
  std::string text =
      fmt::format("{}: {} nodes after the runtime's optimizations\n", j["model"].get<std::string>(), j["nodes"].get<size_t>());
  for (const auto& op : j["ops"]) {
    const auto& names = op["names"];
    std::string list;
    for (size_t i = 0; i < names.size() && i < 3; ++i) list += (i > 0 ? ", " : "") + names[i].get<std::string>();
    text += fmt::format("  {:<32} x{:<4} {:<4} {:<28} {}{}\n", op["op"].get<std::string>(), op["count"].get<int>(),
                        op["device"].get<std::string>(), op["provider"].get<std::string>(), list, names.size() > 3 ? ", …" : "");
  }
  for (const auto& note : j["notes"]) text += "  " + note.get<std::string>() + "\n";
  return text;
}

}  // namespace slm::cli
