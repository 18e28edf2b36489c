// Measurements of a run: memory, time per zone, energy and temperature. Every physical figure carries its sensor's name; where
// there is no sensor there is no figure.
//
// Sources: Linux ABI documents sysfs-class-powercap, hwmon/sysfs-interface, sysfs-class-thermal, sysfs-class-power, and proc(5).
// All roots are parameters, so that tests run on a made-up tree.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace slm::telemetry {

// ---- memory -------------------------------------------------------------------------------------------------------------

struct ProcessMemory {
  uint64_t rss_bytes = 0;       // resident now (VmRSS)
  uint64_t peak_rss_bytes = 0;  // highest since start or since ResetPeakRss (VmHWM)
};
// Errors: kUnavailable where `proc` has no self/status (not Linux), kCorrupt when its lines cannot be read.
Result<ProcessMemory> ReadProcessMemory(const std::string& proc = "/proc");

// Starts a new peak: clear_refs value 5. Errors: kUnavailable where the kernel does not offer it.
Status ResetPeakRss(const std::string& proc = "/proc");

struct SystemMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;                // the kernel's estimate of what new programs can take without swapping (MemAvailable)
  std::optional<uint64_t> cgroup_limit_bytes;  // set when a memory cgroup allows less than the machine has
};
Result<SystemMemory> ReadSystemMemory(const std::string& proc = "/proc", const std::string& sys = "/sys");

// ---- sensors ------------------------------------------------------------------------------------------------------------

enum class SensorKind : unsigned char { kEnergy, kPower, kTemperature };
enum class SensorStatus : unsigned char { kReady, kDenied, kUnreadable, kInactive };
enum class SensorUse : unsigned char {
  kChosen,  // what EnergyMeter or ReadTemperature takes on this machine
  kSpare,   // would be taken if the chosen ones were absent
  kNever,   // listed only: part of another one, or it measures another device
};

struct SensorInfo {
  std::string name;  // "powercap package-0", "hwmon k10temp Tctl", "battery BAT0"
  std::string path;  // the file that is read
  SensorKind kind = SensorKind::kEnergy;
  SensorStatus status = SensorStatus::kReady;
  SensorUse use = SensorUse::kSpare;
  std::string reason;  // why it is not ready or never used; empty otherwise
};
const char* SensorKindName(SensorKind kind);        // "energy", "power", "temperature"
const char* SensorStatusName(SensorStatus status);  // "ready", "denied", "unreadable", "inactive"
const char* SensorUseName(SensorUse use);           // "chosen", "spare", "never"

// Every energy, power and temperature sensor found, each read once. Order: by kind, then by preference.
std::vector<SensorInfo> ListSensors(const std::string& sys = "/sys");

enum class EnergyMethod : unsigned char {
  kCounter,       // the hardware's own energy counter, exact between Start and Stop
  kSampledPower,  // power readings integrated by trapezoids over the calls of Start, Sample, Stop: an estimate
};
const char* EnergyMethodName(EnergyMethod method);  // "counter", "sampled_power"

struct EnergyReading {
  double joules = 0;
  double watts = 0;  // joules over the time between Start and Stop
  double seconds = 0;
  std::string source;  // names of the sensors that were added, joined by " + "
  EnergyMethod method = EnergyMethod::kCounter;
  int n_samples = 0;  // readings taken, Start and Stop included
};

// Energy between Start and Stop. Preference: powercap packages, powercap psys, hwmon sensors of the CPU, discharging
// batteries (the whole device), other hwmon power sensors. One kind is taken, never a mix. Not thread-safe; one meter a run.
class EnergyMeter {
 public:
  using Clock = int64_t (*)();
  explicit EnergyMeter(const std::string& sys = "/sys", Clock clock = NowNs);
  ~EnergyMeter();
  EnergyMeter(EnergyMeter&&) noexcept;
  EnergyMeter& operator=(EnergyMeter&&) noexcept;

  void Start();
  // Optional reading in between: makes power integration finer and lets counters wrap more than once. Allocates nothing.
  void Sample();
  // Empty without a usable sensor, when one failed on the way, when no time passed, or when a counter may have wrapped
  // unseen. Ends the measurement; Start begins a new one.
  std::optional<EnergyReading> Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct TemperatureReading {
  double celsius = 0;
  std::string source;
};
// Temperature of the processor: the hottest sensor of the best kind present (package before core before thermal zone).
std::optional<TemperatureReading> ReadTemperature(const std::string& sys = "/sys");

// ---- zones --------------------------------------------------------------------------------------------------------------

struct ZoneTotal {
  std::string name;
  uint64_t calls = 0;
  uint64_t total_ns = 0;
  uint64_t max_ns = 0;
};
// What the zones entered so far have spent, most first; zones of one name are added up. Empty in builds without SLM_ZONES.
std::vector<ZoneTotal> ReportZones();
void ResetZones();

// One place in the code that is timed. Lives as a function's static; enters the process-wide list when first reached.
class ZoneSite {
 public:
  explicit ZoneSite(const char* name);
  void Add(uint64_t ns);

 private:
  friend std::vector<ZoneTotal> ReportZones();
  friend void ResetZones();
  const char* name_;
  ZoneSite* next_ = nullptr;
  std::atomic<uint64_t> calls_{0}, total_ns_{0}, max_ns_{0};
};

class ZoneTimer {
 public:
  explicit ZoneTimer(ZoneSite& site) : site_(site), start_ns_(NowNs()) {}
  ~ZoneTimer() { site_.Add(static_cast<uint64_t>(NowNs() - start_ns_)); }
  ZoneTimer(const ZoneTimer&) = delete;
  ZoneTimer& operator=(const ZoneTimer&) = delete;

 private:
  ZoneSite& site_;
  int64_t start_ns_;
};

}  // namespace slm::telemetry

// Times the rest of the enclosing block under `name` (a string literal). From any thread, no allocation. Without the build
// switch SLM_ZONES it is an empty declaration.
#if defined(SLM_ZONES) && SLM_ZONES
#define SLM_ZONE(name)                                                     \
  static ::slm::telemetry::ZoneSite SLM_CONCAT(slm_site_, __LINE__){name}; \
  const ::slm::telemetry::ZoneTimer SLM_CONCAT(slm_timer_, __LINE__)(SLM_CONCAT(slm_site_, __LINE__))
#else
#define SLM_ZONE(name) static_assert(true)
#endif
