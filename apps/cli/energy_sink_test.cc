// Sampling while text is streamed, on a made-up battery.
#include "energy_sink.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace slm::cli {
namespace {

using telemetry::EnergyMethod;

int64_t g_now_ns = 0;
int64_t Clock() { return g_now_ns; }

struct Text final : decode::TokenSink {
  void OnText(std::string_view utf8) override { all += utf8; }
  std::string all;
};

class Energy : public testing::Test {
 protected:
  void SetUp() override {
    g_now_ns = 1'000'000'000;
    Write("power_supply/BAT0/type", "Battery");
    Write("power_supply/BAT0/status", "Discharging");
    Watts(10);
  }
  void TearDown() override { std::filesystem::remove_all(sys_); }
  static std::string MakeSys() {
    char name[] = "/tmp/slm_energy_XXXXXX";
    return mkdtemp(name);
  }
  void Write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = sys_ + "/class/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << "\n";
  }
  void Watts(int w) const { Write("power_supply/BAT0/power_now", std::to_string(w) + "000000"); }
  void Piece(EnergySink& sink, int64_t after_ms) {
    g_now_ns += after_ms * 1'000'000;
    sink.OnText("a");
  }
  std::string sys_ = MakeSys();
  telemetry::EnergyMeter meter_{sys_, Clock};
  Text text_;
};

TEST_F(Energy, APeakInTheMiddleIsSeen) {
  meter_.Start();
  EnergySink sink(text_, meter_, Clock);
  Watts(30);
  Piece(sink, 1000);  // 10 W to 30 W: 20 J
  Piece(sink, 1000);  // 30 J
  Watts(10);
  g_now_ns += 1'000'000'000;  // 30 W to 10 W: 20 J
  const auto reading = Credible(meter_.Stop());
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 70);  // the two ends alone say 30
  EXPECT_EQ(reading->n_samples, 4);
  EXPECT_EQ(reading->method, EnergyMethod::kSampledPower);
  EXPECT_EQ(text_.all, "aa");
}

TEST_F(Energy, NoMoreThanTenSamplesASecond) {
  meter_.Start();
  EnergySink sink(text_, meter_, Clock);
  for (int i = 0; i < 1000; ++i) Piece(sink, 1);
  const auto reading = Credible(meter_.Stop());
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->n_samples, 1 + 10 + 1);  // Start, every 100 ms, Stop
  EXPECT_EQ(text_.all.size(), 1000u);
}

TEST_F(Energy, PowerAtTheEndsOnlyIsNoReading) {
  meter_.Start();
  EnergySink sink(text_, meter_, Clock);
  Piece(sink, 99);
  const auto ends = meter_.Stop();
  ASSERT_TRUE(ends);
  EXPECT_EQ(ends->n_samples, 2);
  EXPECT_FALSE(Credible(ends));
  EXPECT_FALSE(Credible(std::nullopt));
}

TEST_F(Energy, ACounterNeedsOnlyItsEnds) {
  Write("powercap/intel-rapl:0/name", "package-0");
  Write("powercap/intel-rapl:0/max_energy_range_uj", "262143328850");
  Write("powercap/intel-rapl:0/energy_uj", "1000000");
  meter_.Start();
  Write("powercap/intel-rapl:0/energy_uj", "3000000");
  g_now_ns += 10'000'000;
  const auto reading = Credible(meter_.Stop());
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->joules, 2);
}

}  // namespace
}  // namespace slm::cli
