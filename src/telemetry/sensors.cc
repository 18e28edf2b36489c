// Reading probes, choosing among them, and listing them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "telemetry/probe.h"
#include "telemetry/sysfs.h"

namespace slm::telemetry {
namespace {

struct Bounds {
  int64_t low, high;
};

// Values outside are a broken driver, not a measurement: a machine of 1 MW, a running CPU at -60 or 200 degrees.
Bounds BoundsOf(const Probe& probe) {
  switch (probe.kind) {
    case SensorKind::kEnergy: return {0, probe.range_uj > 0 ? probe.range_uj : INT64_MAX};
    case SensorKind::kPower: return {-1'000'000'000'000, 1'000'000'000'000};
    case SensorKind::kTemperature: return {-60'000, 200'000};
  }
  return {0, 0};
}

constexpr Bounds kVoltage{0, 1'000'000'000};               // uV
constexpr Bounds kCurrent{-1'000'000'000, 1'000'000'000};  // uA; the product with kVoltage fits 64 bits

bool Discharging(const Probe& probe) {
  if (probe.status_path.empty()) return true;
  char text[16] = {};
  const int fd = open(probe.status_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  return n > 0 && std::string_view(text).starts_with("Discharging");
}

}  // namespace

bool ReadProbe(const Probe& probe, int64_t& value) {
  if (!Discharging(probe)) return false;
  if (probe.voltage_path.empty()) {
    const Bounds bounds = BoundsOf(probe);
    if (!ReadNumberFast(probe.path.c_str(), bounds.low, bounds.high, value)) return false;
  } else {
    int64_t current_ua = 0, voltage_uv = 0;
    if (!ReadNumberFast(probe.path.c_str(), kCurrent.low, kCurrent.high, current_ua)) return false;
    if (!ReadNumberFast(probe.voltage_path.c_str(), kVoltage.low, kVoltage.high, voltage_uv)) return false;
    value = current_ua * voltage_uv / 1'000'000;
  }
  if (!probe.status_path.empty() && value < 0) value = -value;
  return probe.kind != SensorKind::kPower || value >= 0;
}

void CheckProbe(Probe& probe) {
  const Bounds bounds = probe.voltage_path.empty() ? BoundsOf(probe) : kCurrent;
  SysfsValue first = ReadNumber(probe.path, bounds.low, bounds.high);
  if (first.status == SensorStatus::kReady && !probe.voltage_path.empty())
    first = ReadNumber(probe.voltage_path, kVoltage.low, kVoltage.high);
  probe.status = first.status;
  if (first.status != SensorStatus::kReady) {
    probe.reason = first.reason;
  } else if (!Discharging(probe)) {
    probe.status = SensorStatus::kInactive;
    probe.reason = "not discharging: the machine runs on mains power";
  } else if (int64_t value = 0; !ReadProbe(probe, value)) {
    probe.status = SensorStatus::kUnreadable;
    probe.reason = "value is out of range";
  }
}

std::vector<Probe> FindProbes(const std::string& sys) {
  std::vector<Probe> all;
  for (auto find : {FindPowercap, FindHwmon, FindBatteries, FindThermalZones})
    for (Probe& probe : find(sys)) all.push_back(std::move(probe));
  const auto temperature_last = [](const Probe& p) { return p.kind == SensorKind::kTemperature ? 1 : 0; };
  std::stable_sort(all.begin(), all.end(), [&](const Probe& a, const Probe& b) {
    if (temperature_last(a) != temperature_last(b)) return temperature_last(a) < temperature_last(b);
    return a.rank < b.rank;
  });
  return all;
}

std::vector<size_t> ChooseProbes(const std::vector<Probe>& probes, Quantity quantity) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < probes.size(); ++i) {
    const bool temperature = probes[i].kind == SensorKind::kTemperature;
    if (temperature != (quantity == Quantity::kTemperature)) continue;
    if (probes[i].status != SensorStatus::kReady || probes[i].rank == kRankNever) continue;
    if (!chosen.empty() && probes[chosen[0]].rank != probes[i].rank) continue;  // probes come in order of rank
    if (!chosen.empty() && probes[i].rank == kRankHwmonOther) continue;
    chosen.push_back(i);
  }
  return chosen;
}

std::vector<SensorInfo> ListSensors(const std::string& sys) {
  const std::vector<Probe> probes = FindProbes(sys);
  std::vector<SensorInfo> list;
  for (const Probe& probe : probes)
    list.push_back(
        {probe.name, probe.path, probe.kind, probe.status, probe.rank == kRankNever ? SensorUse::kNever : SensorUse::kSpare, probe.reason});
  for (const Quantity quantity : {Quantity::kEnergy, Quantity::kTemperature})
    for (const size_t i : ChooseProbes(probes, quantity)) list[i].use = SensorUse::kChosen;
  return list;
}

std::optional<TemperatureReading> ReadTemperature(const std::string& sys) {
  const std::vector<Probe> probes = FindProbes(sys);
  std::optional<TemperatureReading> hottest;
  for (const size_t i : ChooseProbes(probes, Quantity::kTemperature)) {
    int64_t value = 0;
    if (!ReadProbe(probes[i], value)) continue;
    const double celsius = static_cast<double>(value) * 1e-3;
    if (!hottest || celsius > hottest->celsius) hottest = TemperatureReading{celsius, probes[i].name};
  }
  return hottest;
}

const char* SensorKindName(SensorKind kind) {
  switch (kind) {
    case SensorKind::kEnergy: return "energy";
    case SensorKind::kPower: return "power";
    case SensorKind::kTemperature: return "temperature";
  }
  return "unknown";
}

const char* SensorStatusName(SensorStatus status) {
  switch (status) {
    case SensorStatus::kReady: return "ready";
    case SensorStatus::kDenied: return "denied";
    case SensorStatus::kUnreadable: return "unreadable";
    case SensorStatus::kInactive: return "inactive";
  }
  return "unknown";
}

const char* SensorUseName(SensorUse use) {
  switch (use) {
    case SensorUse::kChosen: return "chosen";
    case SensorUse::kSpare: return "spare";
    case SensorUse::kNever: return "never";
  }
  return "unknown";
}

}  // namespace slm::telemetry
