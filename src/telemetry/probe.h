// A sensor as the discovery files find it: where to read, how much it counts, in which order it is preferred.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/telemetry.h"

namespace slm::telemetry {

// Preference classes; the lowest with a ready probe is used. All ready probes of the class are added (energy, power) or the
// hottest is taken (temperature). kNever: listed only.
enum ProbeRank : int {
  kRankPowercapPackage = 0,
  kRankPowercapPlatform = 1,
  kRankHwmonCpuCounter = 2,
  kRankHwmonCpuPower = 3,
  kRankBattery = 4,
  kRankHwmonOther = 5,  // taken alone (the first), because nobody knows whether two of them overlap
  kRankPackageTemperature = 10,
  kRankSecondTemperature = 11,
  kRankCoreTemperature = 12,
  kRankCpuZone = 13,
  kRankBoardZone = 14,
  kRankNever = 99,
};

struct Probe {
  SensorKind kind = SensorKind::kEnergy;
  std::string name;
  std::string path;          // micro-joules, micro-watts or milli-degrees Celsius
  std::string voltage_path;  // not empty: `path` is a current in microampere, to be multiplied by this in microvolt
  std::string status_path;   // not empty: must read "Discharging" for the probe to count
  int64_t range_uj = 0;      // energy counters: the value they wrap after; 0 not known
  double max_watts = 0;      // energy counters: power that is never exceeded, for the time a wrap takes at least
  int rank = kRankNever;
  SensorStatus status = SensorStatus::kReady;
  std::string reason;
};

std::vector<Probe> FindPowercap(const std::string& sys);
std::vector<Probe> FindHwmon(const std::string& sys);
std::vector<Probe> FindThermalZones(const std::string& sys);
std::vector<Probe> FindBatteries(const std::string& sys);

// All of the above, by kind and rank.
std::vector<Probe> FindProbes(const std::string& sys);

// Reads once; sets status and reason of a probe that cannot deliver.
void CheckProbe(Probe& probe);

// Value in the probe's unit; false when it cannot be had now. Allocates nothing.
bool ReadProbe(const Probe& probe, int64_t& value);

// Indices of the probes that a measurement of energy (or temperature) uses; empty when none is ready.
enum class Quantity : unsigned char { kEnergy, kTemperature };
std::vector<size_t> ChooseProbes(const std::vector<Probe>& probes, Quantity quantity);

}  // namespace slm::telemetry
