// Any bytes in any sysfs or proc file: no crash, and a figure only from a number within its bounds.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "telemetry/fake_tree_for_test.h"
#include "telemetry/telemetry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm::telemetry;
  static const FakeTree tree;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* path : {"class/powercap/intel-rapl:0/energy_uj", "class/powercap/intel-rapl:0/max_energy_range_uj",
                           "class/powercap/intel-rapl:0/name", "class/hwmon/hwmon0/name", "class/hwmon/hwmon0/temp1_label",
                           "class/thermal/thermal_zone0/temp", "class/thermal/thermal_zone0/type", "class/power_supply/BAT0/status",
                           "class/power_supply/BAT0/current_now", "class/power_supply/BAT0/voltage_now", "self/status", "meminfo"})
    tree.Write(path, text);
  tree.Write("class/hwmon/hwmon0/temp1_input", text);
  tree.Write("class/power_supply/BAT0/type", "Battery\n");
  EnergyMeter meter(tree.root());
  meter.Start();
  meter.Sample();
  if (const auto reading = meter.Stop(); reading && !(reading->joules >= 0 && !reading->source.empty())) abort();
  if (const auto reading = ReadTemperature(tree.root()); reading && !(reading->celsius >= -60 && reading->celsius <= 200)) abort();
  for (const SensorInfo& sensor : ListSensors(tree.root()))
    if (sensor.status != SensorStatus::kReady && sensor.reason.empty()) abort();
  (void)ReadProcessMemory(tree.root()).ok();
  (void)ReadSystemMemory(tree.root(), tree.root()).ok();
  return 0;
}
