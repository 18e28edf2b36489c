// Energy counters of the powercap class (RAPL on Intel and AMD; Linux ABI sysfs-class-powercap).
//
// <class>/<type>:<n> are top zones, <type>:<n>:<m> lie inside them and are already counted there, so they are never added.
// psys covers the packages too. The same package may appear twice, through MSR (intel-rapl) and MMIO (intel-rapl-mmio).
// dtpm zones are left out: their energy is computed from a model, not measured.
#include <algorithm>

#include "telemetry/probe.h"
#include "telemetry/sysfs.h"

namespace slm::telemetry {
namespace {

// Power that a package stays under, when its limit is not told: above the largest server parts of today.
constexpr double kPackageWatts = 1000;

double PowerBound(const std::string& zone) {
  const SysfsValue limit = ReadNumber(zone + "/constraint_0_max_power_uw", 1, 5'000'000'000);
  // Short bursts go above the long-term limit; twice the limit is never seen over minutes.
  return limit.status == SensorStatus::kReady ? static_cast<double>(limit.value) * 2e-6 : kPackageWatts;
}

Probe ZoneProbe(const std::string& folder, const std::string& entry) {
  const std::string zone = folder + "/" + entry;
  const std::string label = ReadLine(zone + "/name");
  Probe probe;
  probe.name = "powercap " + (label.empty() ? entry : label);
  probe.path = zone + "/energy_uj";
  const SysfsValue range = ReadNumber(zone + "/max_energy_range_uj", 1, INT64_MAX);
  if (range.status == SensorStatus::kReady) probe.range_uj = range.value;
  probe.max_watts = PowerBound(zone);
  if (std::count(entry.begin(), entry.end(), ':') > 1) {
    probe.reason = "part of " + entry.substr(0, entry.rfind(':')) + " or beside it; not added to it";
  } else {
    probe.rank = label.starts_with("psys") ? kRankPowercapPlatform : kRankPowercapPackage;
  }
  CheckProbe(probe);
  return probe;
}

}  // namespace

std::vector<Probe> FindPowercap(const std::string& sys) {
  const std::string folder = sys + "/class/powercap";
  std::vector<Probe> probes;
  for (const std::string& entry : ListFolder(folder)) {
    if (entry.find(':') == std::string::npos || entry.starts_with("dtpm")) continue;
    Probe probe = ZoneProbe(folder, entry);
    const auto twin = std::find_if(probes.begin(), probes.end(), [&](const Probe& other) {
      return other.rank != kRankNever && other.rank == probe.rank && other.name == probe.name;
    });
    if (twin != probes.end()) {
      Probe& spare = twin->status == SensorStatus::kReady || probe.status != SensorStatus::kReady ? probe : *twin;
      spare.rank = kRankNever;
      if (spare.status == SensorStatus::kReady) spare.reason = "the same zone through another interface";
    }
    probes.push_back(std::move(probe));
  }
  return probes;
}

}  // namespace slm::telemetry
