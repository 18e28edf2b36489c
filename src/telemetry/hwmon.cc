// hwmon chips: energy*_input (microjoule), power*_input and power*_average (microwatt), temp*_input (milli-degree), each with
// an optional *_label (Linux document hwmon/sysfs-interface).
//
// What a chip measures follows from its driver, so the drivers whose scope is the processor are listed; others are never added
// up, and those of other devices (GPU, disk, network) are listed only.
#include <algorithm>
#include <array>
#include <string_view>

#include "telemetry/probe.h"
#include "telemetry/sysfs.h"

namespace slm::telemetry {
namespace {

struct LabelRank {
  std::string_view driver, label_prefix;  // an empty prefix matches every label
  int rank;
};

// First match wins. amd_energy also has a counter per core (Ecore), which its sockets include.
constexpr LabelRank kEnergyLabels[] = {
    {"amd_energy", "Esocket", kRankHwmonCpuCounter},
    {"amd_energy", "", kRankNever},
    {"zenergy", "Esocket", kRankHwmonCpuCounter},
    {"zenergy", "", kRankNever},
};
constexpr LabelRank kPowerLabels[] = {
    {"zenpower", "SVI2_P_", kRankHwmonCpuPower},
    {"zenpower", "", kRankNever},
    {"fam15h_power", "", kRankHwmonCpuPower},
};
// k10temp and zenpower: Tctl may carry an offset meant for fan control, Tdie is the die.
constexpr LabelRank kTemperatureLabels[] = {
    {"coretemp", "Package", kRankPackageTemperature},
    {"coretemp", "", kRankCoreTemperature},
    {"k10temp", "Tdie", kRankPackageTemperature},
    {"k10temp", "Tctl", kRankSecondTemperature},
    {"k10temp", "", kRankCoreTemperature},
    {"zenpower", "Tdie", kRankPackageTemperature},
    {"zenpower", "Tctl", kRankSecondTemperature},
    {"zenpower", "", kRankCoreTemperature},
    {"via_cputemp", "", kRankCoreTemperature},
    {"cpu_thermal", "", kRankPackageTemperature},
    {"soc_thermal", "", kRankSecondTemperature},
};
constexpr std::string_view kOtherDevices[] = {"amdgpu", "radeon", "nouveau", "i915", "xe", "nvme", "drivetemp", "mlx5", "iwlwifi"};

bool IsOtherDevice(std::string_view driver) {
  return std::any_of(std::begin(kOtherDevices), std::end(kOtherDevices), [&](std::string_view d) { return driver.starts_with(d); });
}

template <size_t N>
int Rank(const LabelRank (&table)[N], const std::string& driver, const std::string& label, int otherwise) {
  for (const LabelRank& row : table)
    if (driver == row.driver && label.starts_with(row.label_prefix)) return row.rank;
  return otherwise;
}

// "power3_input" with the prefix "power" and the suffix "_input" gives "3"; else empty.
std::string Number(const std::string& file, std::string_view prefix, std::string_view suffix) {
  if (file.size() <= prefix.size() + suffix.size() || !file.starts_with(prefix) || !file.ends_with(suffix)) return {};
  const std::string number = file.substr(prefix.size(), file.size() - prefix.size() - suffix.size());
  const bool digits = std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? number : std::string();
}

Probe ChipProbe(const std::string& chip, const std::string& driver, const std::string& file, const std::string& channel) {
  const std::string label = ReadLine(chip + "/" + channel + "_label");
  Probe probe;
  probe.name = "hwmon " + (driver.empty() ? "unnamed chip" : driver) + " " + (label.empty() ? channel : label);
  probe.path = chip + "/" + file;
  if (channel.starts_with("energy")) {
    probe.kind = SensorKind::kEnergy;
    probe.rank = Rank(kEnergyLabels, driver, label, kRankNever);
    if (probe.rank == kRankNever) probe.reason = "what it covers is not known, or another sensor includes it";
  } else if (channel.starts_with("power")) {
    probe.kind = SensorKind::kPower;
    probe.rank = Rank(kPowerLabels, driver, label, kRankHwmonOther);
    if (probe.rank == kRankNever) probe.reason = "another sensor includes it";
  } else {
    probe.kind = SensorKind::kTemperature;
    probe.rank = Rank(kTemperatureLabels, driver, label, kRankNever);
    if (probe.rank == kRankNever) probe.reason = "not the processor's temperature";
  }
  if (IsOtherDevice(driver)) {
    probe.rank = kRankNever;
    probe.reason = "measures another device";
  }
  CheckProbe(probe);
  return probe;
}

}  // namespace

std::vector<Probe> FindHwmon(const std::string& sys) {
  std::vector<Probe> probes;
  const std::string folder = sys + "/class/hwmon";
  for (const std::string& entry : ListFolder(folder)) {
    std::string chip = folder + "/" + entry;
    std::string driver = ReadLine(chip + "/name");
    if (driver.empty() && !ReadLine(chip + "/device/name").empty()) {  // drivers of the old kind keep their files one level down
      chip += "/device";
      driver = ReadLine(chip + "/name");
    }
    const auto files = ListFolder(chip);
    for (const std::string& file : files) {
      for (const std::string_view kind : {"energy", "power", "temp"}) {
        std::string number = Number(file, kind, "_input");
        if (number.empty() && kind == "power") {
          number = Number(file, kind, "_average");  // chips with both would be listed twice
          if (std::find(files.begin(), files.end(), "power" + number + "_input") != files.end()) number.clear();
        }
        if (!number.empty()) probes.push_back(ChipProbe(chip, driver, file, std::string(kind) + number));
      }
    }
  }
  return probes;
}

}  // namespace slm::telemetry
