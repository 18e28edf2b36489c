// Thermal zones (Linux ABI sysfs-class-thermal: type, temp in milli-degree) and batteries (sysfs-class-power: power_now in
// microwatt, or current_now in microampere and voltage_now in microvolt; some drivers give a negative current).
#include <algorithm>
#include <string_view>

#include "telemetry/probe.h"
#include "telemetry/sysfs.h"

namespace slm::telemetry {
namespace {

int ZoneRank(std::string_view type) {
  if (type == "x86_pkg_temp" || type.starts_with("cpu") || type.find("-cpu") != std::string_view::npos) return kRankCpuZone;
  if (type == "acpitz" || type.starts_with("soc")) return kRankBoardZone;
  return kRankNever;
}

}  // namespace

std::vector<Probe> FindThermalZones(const std::string& sys) {
  std::vector<Probe> probes;
  const std::string folder = sys + "/class/thermal";
  for (const std::string& entry : ListFolder(folder)) {
    if (!entry.starts_with("thermal_zone")) continue;
    const std::string zone = folder + "/" + entry, type = ReadLine(zone + "/type");
    Probe probe;
    probe.kind = SensorKind::kTemperature;
    probe.name = "thermal zone " + (type.empty() ? entry : type);
    probe.path = zone + "/temp";
    probe.rank = ZoneRank(type);
    if (probe.rank == kRankNever) probe.reason = "not the processor's temperature";
    CheckProbe(probe);
    probes.push_back(std::move(probe));
  }
  return probes;
}

std::vector<Probe> FindBatteries(const std::string& sys) {
  std::vector<Probe> probes;
  const std::string folder = sys + "/class/power_supply";
  for (const std::string& entry : ListFolder(folder)) {
    const std::string supply = folder + "/" + entry;
    if (ReadLine(supply + "/type") != "Battery") continue;
    Probe probe;
    probe.kind = SensorKind::kPower;
    probe.name = "battery " + entry;
    // A mouse or a headset has a battery too; its scope is "Device", that of the machine "System" or not told.
    if (ReadLine(supply + "/scope") == "Device") {
      probe.reason = "battery of another device";
    } else {
      probe.rank = kRankBattery;
    }
    const auto files = ListFolder(supply);
    const auto has = [&](const char* file) { return std::find(files.begin(), files.end(), file) != files.end(); };
    probe.path = supply + "/power_now";
    if (!has("power_now") && has("current_now") && has("voltage_now")) {
      probe.path = supply + "/current_now";
      probe.voltage_path = supply + "/voltage_now";
    }
    probe.status_path = supply + "/status";
    CheckProbe(probe);
    probes.push_back(std::move(probe));
  }
  return probes;
}

}  // namespace slm::telemetry
