// Temperature and the sensor list on a made-up sysfs tree.
#include <gtest/gtest.h>

#include <algorithm>

#include "telemetry/fake_tree_for_test.h"
#include "telemetry/telemetry.h"

namespace slm::telemetry {
namespace {

TEST(Temperature, PackageBeforeCoreBeforeZone) {
  FakeTree tree;
  tree.Write("class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
  tree.Write("class/thermal/thermal_zone0/temp", "91000\n");
  tree.Write("class/hwmon/hwmon10/name", "coretemp\n");
  tree.Write("class/hwmon/hwmon10/temp1_input", "55000\n");
  tree.Write("class/hwmon/hwmon10/temp1_label", "Package id 0\n");
  tree.Write("class/hwmon/hwmon10/temp2_input", "60000\n");
  tree.Write("class/hwmon/hwmon10/temp2_label", "Core 0\n");
  auto reading = ReadTemperature(tree.root());
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->celsius, 55.0);
  EXPECT_EQ(reading->source, "hwmon coretemp Package id 0");
  tree.Write("class/hwmon/hwmon10/temp1_input", "garbage\n");
  reading = ReadTemperature(tree.root());
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->source, "hwmon coretemp Core 0");
  tree.Remove("class/hwmon");
  reading = ReadTemperature(tree.root());
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->celsius, 91.0);
  EXPECT_EQ(reading->source, "thermal zone x86_pkg_temp");
}

TEST(Temperature, HottestOfTwoPackages) {
  FakeTree tree;
  for (const char* n : {"1", "2"}) {
    const std::string chip = std::string("class/hwmon/hwmon") + n;
    tree.Write(chip + "/name", "coretemp\n");
    tree.Write(chip + "/temp1_label", std::string("Package id ") + n + "\n");
    tree.Write(chip + "/temp1_input", std::string(n) + "4500\n");
  }
  const auto reading = ReadTemperature(tree.root());
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->celsius, 24.5);
  EXPECT_EQ(reading->source, "hwmon coretemp Package id 2");
}

TEST(Temperature, DieBeforeControlTemperature) {
  FakeTree tree;
  tree.Write("class/hwmon/hwmon1/name", "k10temp\n");
  tree.Write("class/hwmon/hwmon1/temp1_input", "82000\n");
  tree.Write("class/hwmon/hwmon1/temp1_label", "Tctl\n");
  EXPECT_EQ(ReadTemperature(tree.root())->source, "hwmon k10temp Tctl");
  tree.Write("class/hwmon/hwmon1/temp2_input", "55125\n");
  tree.Write("class/hwmon/hwmon1/temp2_label", "Tdie\n");
  const auto reading = ReadTemperature(tree.root());
  EXPECT_EQ(reading->source, "hwmon k10temp Tdie");
  EXPECT_DOUBLE_EQ(reading->celsius, 55.125);
}

TEST(Temperature, DisksAndNonsenseAreNotTheProcessor) {
  FakeTree tree;
  EXPECT_FALSE(ReadTemperature(tree.root()));
  tree.Write("class/hwmon/hwmon0/name", "nvme\n");
  tree.Write("class/hwmon/hwmon0/temp1_input", "40000\n");
  tree.Write("class/thermal/thermal_zone0/type", "iwlwifi_1\n");
  tree.Write("class/thermal/thermal_zone0/temp", "40000\n");
  tree.Write("class/thermal/thermal_zone1/type", "cpu-thermal\n");
  tree.Write("class/thermal/thermal_zone1/temp", "-273150\n");  // a sensor that is off says so in this way
  EXPECT_FALSE(ReadTemperature(tree.root()));
}

TEST(Temperature, DeniedIsListedWithItsReason) {
  FakeTree tree;
  tree.Write("class/thermal/thermal_zone0/type", "cpu-thermal\n");
  tree.Write("class/thermal/thermal_zone0/temp", "40000\n");
  tree.Deny("class/thermal/thermal_zone0/temp");
  const Unprivileged unprivileged;
  EXPECT_FALSE(ReadTemperature(tree.root()));
  EXPECT_EQ(ListSensors(tree.root())[0].status, SensorStatus::kDenied);
}

TEST(Sensors, ListSaysWhatIsChosenSpareAndNever) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "5", "1000000");
  tree.Zone("intel-rapl:0:0", "core", "5", "1000000");
  tree.Zone("intel-rapl:1", "psys", "5", "1000000");
  tree.Write("class/thermal/thermal_zone0/type", "acpitz\n");
  tree.Write("class/thermal/thermal_zone0/temp", "27800\n");
  const auto sensors = ListSensors(tree.root());
  const auto use = [&](const std::string& name) {
    const auto it = std::find_if(sensors.begin(), sensors.end(), [&](const SensorInfo& s) { return s.name == name; });
    return it == sensors.end() ? std::string("absent") : std::string(SensorUseName(it->use));
  };
  EXPECT_EQ(use("powercap package-0"), "chosen");
  EXPECT_EQ(use("powercap psys"), "spare");
  EXPECT_EQ(use("powercap core"), "never");
  EXPECT_EQ(use("thermal zone acpitz"), "chosen");
  for (const auto& sensor : sensors) EXPECT_EQ(sensor.use == SensorUse::kNever, !sensor.reason.empty()) << sensor.name;
}

TEST(Sensors, ReadableTwinReplacesADeniedOne) {
  FakeTree tree;
  tree.Zone("intel-rapl:0", "package-0", "5", "1000000");
  tree.Zone("intel-rapl-mmio:0", "package-0", "5", "1000000");
  tree.Deny("class/powercap/intel-rapl:0/energy_uj");
  const Unprivileged unprivileged;
  for (const auto& sensor : ListSensors(tree.root())) {
    const bool mmio = sensor.path.find("mmio") != std::string::npos;
    EXPECT_EQ(sensor.use, mmio ? SensorUse::kChosen : SensorUse::kNever);
    EXPECT_EQ(sensor.status, mmio ? SensorStatus::kReady : SensorStatus::kDenied);
  }
}

}  // namespace
}  // namespace slm::telemetry
