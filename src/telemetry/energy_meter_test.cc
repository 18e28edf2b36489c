// Energy on a made-up sysfs tree: what is added, what is not, and every way to have no answer.
#include <gtest/gtest.h>

#include "telemetry/fake_tree_for_test.h"
#include "telemetry/telemetry.h"

namespace slm::telemetry {
namespace {

// A clock that moves by one second a call: Start reads it once, Sample and Stop once each.
int64_t g_now_ns = 0;
int64_t StepClock() { return g_now_ns += 1'000'000'000; }
int64_t FrozenClock() { return 5; }

constexpr const char* kRange = "262143328850";  // of a real package

TEST(EnergyMeter, SubtractsACounterAndNamesIt) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "1000000", kRange);
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Zone("intel-rapl:0", "package-0", "13500000", kRange);
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 12.5);
  EXPECT_DOUBLE_EQ(reading->seconds, 1.0);
  EXPECT_DOUBLE_EQ(reading->watts, 12.5);
  EXPECT_EQ(reading->source, "powercap package-0");
  EXPECT_EQ(reading->method, EnergyMethod::kCounter);
  EXPECT_FALSE(meter.Stop());  // one reading a start
}

TEST(EnergyMeter, CounterWrapsAround) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "262143000000", kRange);
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Zone("intel-rapl:0", "package-0", "671150", kRange);
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 1.0);  // 328850 uJ to the end of the range, 671150 after it
}

TEST(EnergyMeter, SamplesLetACounterWrapTwice) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "1500000000", "2000000000");
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Zone("intel-rapl:0", "package-0", "400000000", "2000000000");  // +900 J
  meter.Sample();
  tree.Zone("intel-rapl:0", "package-0", "1400000000", "2000000000");  // +1000 J
  meter.Sample();
  tree.Zone("intel-rapl:0", "package-0", "100000000", "2000000000");  // +700 J
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 2600);
  EXPECT_EQ(reading->n_samples, 4);
}

TEST(EnergyMeter, RefusesAGapThatMayHideAWholeTurn) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "100", "900000000");
  tree.Write("class/powercap/intel-rapl:0/constraint_0_max_power_uw", "1000000000\n");  // 1 kW: a turn takes 0.45 s or more
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  EXPECT_FALSE(meter.Stop());
}

TEST(EnergyMeter, AddsPackagesButNoSubzonesNorPlatformNorTwins) {
  FakeTree tree;
  const auto set = [&](int k) {  // each grows by its own amount
    const auto at = [&](int64_t step) { return std::to_string(1000000 + k * step); };
    tree.Zone("intel-rapl:0", "package-0", at(3000000), kRange);
    tree.Zone("intel-rapl:0:0", "core", at(2000000), kRange);
    tree.Zone("intel-rapl:0:1", "dram", at(500000), kRange);
    tree.Zone("intel-rapl:1", "package-1", at(4000000), kRange);
    tree.Zone("intel-rapl:2", "psys", at(20000000), kRange);
    tree.Zone("intel-rapl-mmio:0", "package-0", at(3000000), kRange);
    tree.Zone("dtpm:0", "dtpm", at(90000000), kRange);
  };
  tree.Write("class/powercap/intel-rapl/enabled", "1\n");
  set(0);
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  set(1);
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 7.0);
  EXPECT_NE(reading->source.find("package-0"), std::string::npos);
  EXPECT_NE(reading->source.find("package-1"), std::string::npos);
  EXPECT_EQ(reading->source.find("psys"), std::string::npos);
}

TEST(EnergyMeter, TakesThePlatformZoneWhenItIsAlone) {
  FakeTree tree;
  tree.Zone("intel-rapl:1", "psys", "0", kRange);
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Zone("intel-rapl:1", "psys", "8000000", kRange);
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->source, "powercap psys");
}

TEST(EnergyMeter, PermissionDeniedIsNoReadingAndIsSaid) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "1", kRange);
  tree.Deny("class/powercap/intel-rapl:0/energy_uj");
  const Unprivileged unprivileged;
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  EXPECT_FALSE(meter.Stop());
  const auto sensors = ListSensors(tree.root());
  ASSERT_EQ(sensors.size(), 1u);
  EXPECT_EQ(sensors[0].status, SensorStatus::kDenied);
  EXPECT_EQ(sensors[0].use, SensorUse::kSpare);
  EXPECT_NE(sensors[0].reason.find("permission denied"), std::string::npos);
}

TEST(EnergyMeter, DeniedPackageFallsBackToAnotherKindOfSensor) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "1", kRange);
  tree.Deny("class/powercap/intel-rapl:0/energy_uj");
  tree.Write("class/hwmon/hwmon3/name", "amd_energy\n");
  tree.Write("class/hwmon/hwmon3/energy1_input", "100\n");
  tree.Write("class/hwmon/hwmon3/energy1_label", "Ecore000\n");
  tree.Write("class/hwmon/hwmon3/energy17_input", "1000000\n");
  tree.Write("class/hwmon/hwmon3/energy17_label", "Esocket0\n");
  const Unprivileged unprivileged;
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  {
    ASSERT_EQ(seteuid(getuid()), 0);
    tree.Write("class/hwmon/hwmon3/energy1_input", "900000\n");
    tree.Write("class/hwmon/hwmon3/energy17_input", "3000000\n");
    if (getuid() == 0) {
      ASSERT_EQ(seteuid(65534), 0);
    }
  }
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 2.0);
  EXPECT_EQ(reading->source, "hwmon amd_energy Esocket0");
}

TEST(EnergyMeter, NoSensorNoReading) {
  FakeTree tree;
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  meter.Sample();
  EXPECT_FALSE(meter.Stop());
  EXPECT_TRUE(ListSensors(tree.root()).empty());
  EXPECT_TRUE(ListSensors("/does/not/exist").empty());
}

TEST(EnergyMeter, GarbageIsNoReading) {
  for (const char* garbage : {"", "\n", "abc\n", "12 34\n", "0x10\n", "-5\n", "99999999999999999999999\n", "1.5\n", "262143328851\n"}) {
    FakeTree tree;
    tree.Zone("intel-rapl:0", "package-0", garbage, kRange);
    EnergyMeter meter(tree.root(), StepClock);
    meter.Start();
    EXPECT_FALSE(meter.Stop()) << garbage;
    EXPECT_EQ(ListSensors(tree.root())[0].status, SensorStatus::kUnreadable) << garbage;
  }
}

TEST(EnergyMeter, SensorThatFailsOnTheWayIsNoReading) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "1000", kRange);
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Write("class/powercap/intel-rapl:0/energy_uj", "oops");
  EXPECT_FALSE(meter.Stop());
  tree.Write("class/powercap/intel-rapl:0/energy_uj", "5000");
  meter.Start();
  tree.Remove("class/powercap/intel-rapl:0");
  EXPECT_FALSE(meter.Stop());
}

TEST(EnergyMeter, CounterThatWrapsWithoutAKnownRangeIsNoReading) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "5000000", "nonsense");
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Write("class/powercap/intel-rapl:0/energy_uj", "10");
  EXPECT_FALSE(meter.Stop());
}

TEST(EnergyMeter, NoTimeNoWatts) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "5000000", kRange);
  EnergyMeter meter(tree.root(), FrozenClock);
  meter.Start();
  EXPECT_FALSE(meter.Stop());
}

TEST(EnergyMeter, BatteryPowerIsIntegratedAndCalledSampled) {
  FakeTree tree;
  tree.Write("class/power_supply/BAT0/type", "Battery\n");
  tree.Write("class/power_supply/BAT0/status", "Discharging\n");
  tree.Write("class/power_supply/BAT0/current_now", "-1000000\n");  // 1 A, sign as some drivers give it
  tree.Write("class/power_supply/BAT0/voltage_now", "12000000\n");  // 12 V
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Write("class/power_supply/BAT0/current_now", "2000000\n");
  meter.Sample();
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, (12 + 24) / 2.0 + 24);  // two trapezoids of one second
  EXPECT_DOUBLE_EQ(reading->watts, 21);
  EXPECT_EQ(reading->method, EnergyMethod::kSampledPower);
  EXPECT_EQ(reading->source, "battery BAT0");
}

TEST(EnergyMeter, BatteryOnMainsIsInactive) {
  for (const char* status : {"Charging\n", "Full\n", "Not charging\n", "Unknown\n", ""}) {
    FakeTree tree;
    tree.Write("class/power_supply/BAT0/type", "Battery\n");
    tree.Write("class/power_supply/BAT0/status", status);
    tree.Write("class/power_supply/BAT0/power_now", "9000000\n");
    tree.Write("class/power_supply/AC/type", "Mains\n");
    EnergyMeter meter(tree.root(), StepClock);
    meter.Start();
    EXPECT_FALSE(meter.Stop()) << status;
    const auto sensors = ListSensors(tree.root());
    ASSERT_EQ(sensors.size(), 1u);
    EXPECT_EQ(sensors[0].status, SensorStatus::kInactive);
  }
}

TEST(EnergyMeter, PlugWhileMeasuringIsNoReading) {
  FakeTree tree;
  tree.Write("class/power_supply/BAT0/type", "Battery\n");
  tree.Write("class/power_supply/BAT0/status", "Discharging\n");
  tree.Write("class/power_supply/BAT0/power_now", "9000000\n");
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  tree.Write("class/power_supply/BAT0/status", "Charging\n");
  EXPECT_FALSE(meter.Stop());
}

TEST(EnergyMeter, MouseBatteryIsNotTheMachine) {
  FakeTree tree;
  tree.Write("class/power_supply/hidpp_battery_0/type", "Battery\n");
  tree.Write("class/power_supply/hidpp_battery_0/scope", "Device\n");
  tree.Write("class/power_supply/hidpp_battery_0/status", "Discharging\n");
  tree.Write("class/power_supply/hidpp_battery_0/power_now", "9000\n");
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  EXPECT_FALSE(meter.Stop());
}

TEST(EnergyMeter, GraphicsCardIsNotTheProcessorAndUnknownPowersAreNotAdded) {
  FakeTree tree;
  tree.Write("class/hwmon/hwmon0/name", "amdgpu\n");
  tree.Write("class/hwmon/hwmon0/power1_average", "90000000\n");
  tree.Write("class/hwmon/hwmon1/name", "ina226\n");
  tree.Write("class/hwmon/hwmon1/power1_input", "5000000\n");
  tree.Write("class/hwmon/hwmon2/name", "ina226\n");
  tree.Write("class/hwmon/hwmon2/power1_input", "7000000\n");
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 5.0);
  EXPECT_EQ(reading->source, "hwmon ina226 power1");
}

TEST(EnergyMeter, ZenpowerRailsAreAdded) {
  FakeTree tree;
  tree.Write("class/hwmon/hwmon0/name", "zenpower\n");
  tree.Write("class/hwmon/hwmon0/power1_input", "10000000\n");
  tree.Write("class/hwmon/hwmon0/power1_label", "SVI2_P_Core\n");
  tree.Write("class/hwmon/hwmon0/power2_input", "6000000\n");
  tree.Write("class/hwmon/hwmon0/power2_label", "SVI2_P_SoC\n");
  EnergyMeter meter(tree.root(), StepClock);
  meter.Start();
  const auto reading = meter.Stop();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->watts, 16.0);
}

}  // namespace
}  // namespace slm::telemetry
