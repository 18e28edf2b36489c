// slm devices: what this machine offers a model: backends, CPU features, memory, sensors.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/cpu_features.h"
#include "base/threads.h"
#include "devices_ort.h"
#include "open_model.h"
#include "progress.h"
#include "roofline.h"
#include "telemetry/telemetry.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

Result<ordered_json> DescribeCpu() {
  const CpuFeatures features = DetectCpu();
  SLM_ASSIGN_OR_RETURN(const Isa isa, IsaOfEnvironment(features));
  return ordered_json{{"backend", "cpu"},
                      {"device", features.brand},
                      {"isa", IsaName(isa)},
                      {"isa_best", IsaName(BestIsa(features))},
                      {"isa_refused", features.amx_refusal.empty() ? ordered_json(nullptr) : ordered_json("amx: " + features.amx_refusal)},
                      {"features", Words(FeatureList(features))},
                      {"threads_default", DefaultThreadCount()},
                      {"threads_hardware", std::thread::hardware_concurrency()}};
}

Result<ordered_json> DescribeMemory() {
  SLM_ASSIGN_OR_RETURN(const telemetry::SystemMemory memory, telemetry::ReadSystemMemory());
  return ordered_json{{"total_bytes", memory.total_bytes},
                      {"available_bytes", memory.available_bytes},
                      {"cgroup_limit_bytes", memory.cgroup_limit_bytes ? ordered_json(*memory.cgroup_limit_bytes) : ordered_json(nullptr)}};
}

ordered_json DescribeSensors(const std::string& sys) {
  ordered_json list = ordered_json::array();
  for (const telemetry::SensorInfo& sensor : telemetry::ListSensors(sys))
    list.push_back({{"name", sensor.name},
                    {"kind", telemetry::SensorKindName(sensor.kind)},
                    {"status", telemetry::SensorStatusName(sensor.status)},
                    {"use", telemetry::SensorUseName(sensor.use)},
                    {"reason", sensor.reason},
                    {"path", sensor.path}});
  return list;
}

ordered_json DescribeRoofline(const Roofline& r) {
  ordered_json peaks = ordered_json::object();
  for (const Roofline::Peak& peak : r.int8) peaks[peak.isa] = peak.gops;
  return ordered_json{{"threads", r.n_threads},
                      {"memory_gbps", r.memory_gbps},
                      {"memory_buffer_bytes", r.memory_bytes},
                      {"cache_gbps", r.cache_bytes > 0 ? ordered_json(r.cache_gbps) : ordered_json(nullptr)},
                      {"cache_buffer_bytes", r.cache_bytes},
                      {"int8_gops", peaks}};
}

std::string RooflineText(const ordered_json& r) {
  std::string line = fmt::format("  {} thread{:<4} read {:.1f} GB/s from memory", r["threads"].get<int>(), r["threads"] == 1 ? "" : "s",
                                 r["memory_gbps"].get<double>());
  if (!r["cache_gbps"].is_null()) line += fmt::format(", {:.1f} GB/s from the last cache", r["cache_gbps"].get<double>());
  line += "; int8";
  for (const auto& [isa, gops] : r["int8_gops"].items()) line += fmt::format(" {} {:.0f} GOP/s", isa, gops.get<double>());
  return line + "\n";
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

void PrintText(Io& io, const ordered_json& cpu, const ordered_json& memory, const ordered_json& sensors) {
  std::string features;
  for (const auto& feature : cpu["features"]) features += " " + feature.get<std::string>();
  io.Print("cpu      " + cpu["device"].get<std::string>() + "\n");
  io.Print("  isa      " + cpu["isa"].get<std::string>() + " (best here: " + cpu["isa_best"].get<std::string>() + ")\n");
  if (!cpu["isa_refused"].is_null()) io.Print("  refused  " + cpu["isa_refused"].get<std::string>() + "\n");
  io.Print("  features" + features + "\n");
  io.Print("  threads  " + std::to_string(cpu["threads_default"].get<int>()) + " by default\n");
  io.Print("memory   " + FormatBytes(memory["total_bytes"].get<uint64_t>()) + ", available " +
           FormatBytes(memory["available_bytes"].get<uint64_t>()) + "\n");
  if (!memory["cgroup_limit_bytes"].is_null())
    io.Print("  limit    " + FormatBytes(memory["cgroup_limit_bytes"].get<uint64_t>()) + " for this group of processes\n");
  if (sensors.empty()) io.Print("sensors  none found: energy and temperature are not reported\n");
  else io.Print("sensors\n");
  for (const auto& sensor : sensors) {
    const std::string reason = sensor["reason"].get<std::string>();
    io.Print("  " + Padded(sensor["name"].get<std::string>(), 32) + " " + Padded(sensor["kind"].get<std::string>(), 11) + " " +
             Padded(sensor["status"].get<std::string>(), 10) + " " + Padded(sensor["use"].get<std::string>(), 6) +
             (reason.empty() ? "" : "  " + reason) + "\n");
  }
}

struct DevicesOptions {
  std::string sys = "/sys";
  bool probe = false;
  std::vector<int> threads;
  OrtDevicesOptions ort;
};

Result<int> Place(Io& io, const OrtDevicesOptions& o) {
  SLM_ASSIGN_OR_RETURN(const ordered_json place, PlaceOnnx(o));
  if (io.json) io.PrintJson(place);
  else io.Print(PlaceText(place));
  return int{kExitOk};
}

Result<int> Devices(Io& io, const DevicesOptions& o) {
  if (!o.ort.place.empty()) return Place(io, o.ort);
  std::error_code failed;
  if (!std::filesystem::is_directory(o.sys, failed))
    return Error(Code::kNotFound, o.sys + ": no such folder", "give --sysfs the root of a sensor tree, or leave it out");
  SLM_ASSIGN_OR_RETURN(const ordered_json cpu, DescribeCpu());
  SLM_ASSIGN_OR_RETURN(const ordered_json memory, DescribeMemory());
  const ordered_json sensors = DescribeSensors(o.sys);
  SLM_ASSIGN_OR_RETURN(const ordered_json ort, DescribeOrt(o.ort));
  ordered_json document = {{"backends", ordered_json::array({cpu})}, {"memory", memory}, {"sensors", sensors}};
  if (!ort.is_null()) document["backends"].push_back(ort);
  if (!io.json) {
    PrintText(io, cpu, memory, sensors);
    io.Print(OrtText(ort));
  }
  if (o.probe) {
    if (!io.json) io.Print("roofline\n");
    document["roofline"] = ordered_json::array();
    const std::vector<int> counts = o.threads.empty() ? std::vector<int>{1, DefaultThreadCount()} : o.threads;
    for (size_t i = 0; i < counts.size(); ++i) {
      if (i > 0 && counts[i] == counts[i - 1]) continue;  // one core: 1 is also the default
      if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
      SLM_ASSIGN_OR_RETURN(const Roofline r, MeasureRoofline(counts[i]));
      document["roofline"].push_back(DescribeRoofline(r));
      if (!io.json) io.Print(RooflineText(document["roofline"].back()));
    }
  }
  if (io.json) io.PrintJson(document);
  return int{kExitOk};
}

}  // namespace

Body DeclareDevices(CLI::App& app, Io& io) {
  auto o = std::make_shared<DevicesOptions>();
  app.add_option("--sysfs", o->sys, "root of the sensor tree, default /sys");
  auto* probe = app.add_flag("--probe", o->probe,
                             "measures what the CPU can do now: reading memory and cache, 8-bit products (about a second a thread count)");
  app.add_option("-t,--threads", o->threads, "thread counts of --probe, separated by commas (default: 1 and all physical cores)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->needs(probe);
  AddOrtDevices(app, o->ort);
  app.footer("SLM_FORCE_ISA=avx2 (or scalar, …) overrides the choice of kernels.\n\nExample:\n  slm devices --probe --json");
  return [o, &io]() -> Result<int> { return Devices(io, *o); };
}

}  // namespace slm::cli
