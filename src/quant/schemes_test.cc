// Weight schemes: signal to noise against a table that numpy simulated (tests/tiny/simulate_schemes.py), names, groups per width.
#include "quant/schemes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "quant/fp4.h"
#include "quant/lpbq.h"
#include "quant/samples_for_test.h"

namespace slm::quant {
namespace {

constexpr int64_t kSamples = 1 << 20, kWidth = 2048, kRows = kSamples / kWidth;

enum class Shape : uint8_t { kGaussian, kStudent };
std::vector<float> SamplesOf(uint64_t seed, Shape shape) {
  Samples samples(seed);
  std::vector<float> out(kSamples);
  for (float& v : out) v = static_cast<float>(shape == Shape::kStudent ? samples.StudentT5() : samples.Gaussian());
  return out;
}

class Schemes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    gaussian_ = new std::vector<float>(SamplesOf(5, Shape::kGaussian));
    student_ = new std::vector<float>(SamplesOf(6, Shape::kStudent));
  }
  static void TearDownTestSuite() {
    delete gaussian_;
    delete student_;
  }
  void SetUp() override { team_ = ThreadTeam::Create(2).Take(); }

  template <class Coded>
  static double Ratio(const std::vector<float>& w, const Coded& coded) {
    double noise = 0, power = 0;
    std::vector<float> v(kWidth);
    for (int64_t i = 0; i < kRows; ++i) {
      coded.Values(i, v.data());
      for (size_t j = 0; j < v.size(); ++j) {
        const double x = static_cast<double>(w[static_cast<size_t>(i * kWidth) + j]), d = x - static_cast<double>(v[j]);
        noise += d * d;
        power += x * x;
      }
    }
    return 10 * std::log10(power / noise);
  }
  double Ratio(const WeightScheme& s, Search search, const std::vector<float>& w) {
    switch (s.storage) {
      case Storage::kLpbq: return Ratio(w, QuantizeGrid(LpbqForm(s.group), search, w.data(), kRows, kWidth, nullptr, *team_));
      case Storage::kMxFp4: return Ratio(w, QuantizeFp4(Fp4::kMx, search, w.data(), kRows, kWidth, nullptr, *team_));
      case Storage::kNvFp4: return Ratio(w, QuantizeFp4(Fp4::kNv, search, w.data(), kRows, kWidth, nullptr, *team_));
      case Storage::kGrid: break;
    }
    return Ratio(w, QuantizeGrid(FormOf(s, kWidth, Store::kF32), search, w.data(), kRows, kWidth, nullptr, *team_));
  }

  static std::vector<float>*gaussian_, *student_;
  std::unique_ptr<ThreadTeam> team_;
};
std::vector<float>*Schemes::gaussian_ = nullptr, *Schemes::student_ = nullptr;

TEST_F(Schemes, SignalToNoiseIsThatOfTheSimulation) {
  const struct {
    const char* name;
    Search search;
    double gaussian, student;
  } rows[] = {
      {"w2-full-g16", Search::kNearest, 9.77, 9.01},    {"w2-full-g64", Search::kNearest, 8.09, 6.34},
      {"w2-zp-g32", Search::kNearest, 7.83, 7.05},      {"w2-sym-g32", Search::kNearest, 3.65, 3.48},
      {"w3-sym-g32", Search::kNearest, 12.91, 11.04},   {"w3-zp-g16", Search::kNearest, 16.55, 15.86},
      {"w3-zp-g128", Search::kNearest, 13.34, 10.91},   {"w3-full-g256", Search::kNearest, 13.06, 9.26},
      {"w4-sym-g16", Search::kNearest, 21.40, 19.94},   {"w4-sym-g256", Search::kNearest, 17.98, 13.93},
      {"w4-zp-g32", Search::kNearest, 21.87, 20.64},    {"w4-zp-g256", Search::kNearest, 19.24, 16.05},
      {"w4-full-g128", Search::kNearest, 19.73, 16.40}, {"w8-sym-g32", Search::kNearest, 45.45, 43.39},
      {"w8-zp-g64", Search::kNearest, 45.43, 43.61},    {"w8-full-g128", Search::kNearest, 43.86, 40.49},
      {"lpbq-g16", Search::kNearest, 21.32, 19.68},     {"lpbq-g32", Search::kNearest, 20.53, 18.43},
      {"lpbq-g64", Search::kNearest, 19.79, 17.10},     {"lpbq-g16", Search::kRefit, 22.05, 20.25},
      {"lpbq-g32", Search::kRefit, 21.07, 18.83},       {"lpbq-g64", Search::kRefit, 20.33, 17.58},
      {"mxfp4", Search::kNearest, 18.79, 17.98},        {"nvfp4", Search::kNearest, 20.43, 20.70},
  };
  for (const auto& row : rows) {
    const WeightScheme s = ParseScheme(row.name).value();
    EXPECT_NEAR(Ratio(s, row.search, *gaussian_), row.gaussian, 0.1) << row.name;
    EXPECT_NEAR(Ratio(s, row.search, *student_), row.student, 0.1) << row.name;
  }
}

TEST_F(Schemes, SearchingGainsInEveryStorage) {
  for (const char* name : {"w2-sym-g32", "w3-zp-g64", "w8-sym-channel", "w4-min-channel", "lpbq-g32", "mxfp4", "nvfp4"}) {
    const WeightScheme s = ParseScheme(name).value();
    EXPECT_GT(Ratio(s, Search::kRefit, *student_), Ratio(s, Search::kNearest, *student_) + 0.1) << name;
  }
}

TEST_F(Schemes, NamesComeBack) {
  for (const char* name : {"w4-sym-g32", "w2-full-g16", "w8-sym-channel", "w3-zp-g256", "w4-min-g64", "lpbq-g64", "mxfp4", "nvfp4"})
    EXPECT_EQ(SchemeName(ParseScheme(name).value()), name);
  for (const char* name :
       {"", "w4", "w4-", "w4-sym", "w4-sym-g", "w4-sym-g33", "w4-sym-g8", "w4-sym-g512", "w9-sym-g32", "w1-sym-g32", "w4-odd-g32",
        "w4-sym-g32x", "w4-sym-channelx", "lpbq", "lpbq-channel", "lpbq-g", "w-sym-g32", "w99999999999-sym-g32", "MXFP4"}) {
    const auto s = ParseScheme(name);
    ASSERT_FALSE(s.ok()) << name;
    EXPECT_EQ(s.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(Schemes, GroupsFitTheWidth) {
  const struct {
    int64_t width;
    int wanted, group;
  } rows[] = {{576, 128, 64},  {576, 256, 64}, {576, 64, 64},    {640, 128, 128},  {640, 256, 128},  {896, 128, 128},
              {896, 256, 128}, {960, 128, 64}, {1152, 128, 128}, {1152, 256, 128}, {2048, 256, 256}, {80, 128, 16}};
  for (const auto& row : rows) {
    const GroupChoice c = ChooseGroup(row.width, row.wanted).value();
    EXPECT_EQ(c.group, row.group) << row.width;
    EXPECT_EQ(c.note.empty(), row.group == row.wanted) << row.width;
  }
  EXPECT_EQ(ChooseGroup(576, 128).value().note, "width 576 is no multiple of 128: groups of 64");
  EXPECT_EQ(ChooseGroup(1000, 32).error().code(), Code::kUnsupported);
  EXPECT_EQ(ChooseGroup(1000, 0).value().group, 0);
}

TEST_F(Schemes, BitsCountScalesAndOffsets) {
  const auto bits = [](const char* name) { return BitsPerWeight(ParseScheme(name).value(), 2048); };
  EXPECT_DOUBLE_EQ(bits("w4-zp-g32"), 4.625);
  EXPECT_DOUBLE_EQ(bits("w4-sym-g32"), 4.5);
  EXPECT_DOUBLE_EQ(bits("w4-min-g32"), 5.0);
  EXPECT_DOUBLE_EQ(bits("w8-sym-channel"), 8 + 16.0 / 2048);
  EXPECT_DOUBLE_EQ(bits("lpbq-g64"), 4 + 4.0 / 64 + 32.0 / 2048);
  EXPECT_DOUBLE_EQ(bits("mxfp4"), 4.25);
  EXPECT_DOUBLE_EQ(bits("nvfp4"), 4.5);
}

// The row's unit is found again from the scales alone: a 16th of the largest.
TEST_F(Schemes, LpbqValuesLieOnOneGridOfTheRow) {
  const CodedRows rows = QuantizeGrid(LpbqForm(32), Search::kRefit, student_->data(), 4, kWidth, nullptr, *team_);
  constexpr int64_t kBlocks = kWidth / 32;
  std::vector<float> v(kWidth);
  for (int64_t i = 0; i < 4; ++i) {
    float largest = 0;
    for (int64_t b = 0; b < kBlocks; ++b) largest = std::max(largest, rows.grids[static_cast<size_t>(i * kBlocks + b)].scale);
    const double unit = static_cast<double>(largest) / 16;
    for (int64_t b = 0; b < kBlocks; ++b) {
      const double multiple = static_cast<double>(rows.grids[static_cast<size_t>(i * kBlocks + b)].scale) / unit;
      EXPECT_NEAR(multiple, std::nearbyint(multiple), 1e-5);
      EXPECT_GE(multiple, 1 - 1e-5);
    }
    rows.Values(i, v.data());
    for (const float x : v) {
      const double steps = static_cast<double>(x) / unit;
      EXPECT_NEAR(steps, std::nearbyint(steps), 1e-4);
      EXPECT_GE(steps, -128.001);
      EXPECT_LE(steps, 112.001);
    }
  }
}

// Every value against every code.
TEST(Fp4Codes, AreTheNearest) {
  EXPECT_EQ(E4M3Value(0x7e), 448);
  EXPECT_EQ(E4M3Value(0x08), 0x1p-6f);
  EXPECT_EQ(E4M3Value(0x01), 0x1p-9f);
  EXPECT_EQ(E4M3Value(0xb8), -1);
  EXPECT_TRUE(std::isnan(E4M3Value(0x7f)));
  EXPECT_EQ(E8M0Value(127), 1);
  EXPECT_EQ(E8M0Value(0), 0x1p-127f);
  const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t c = 0; c < 8; ++c) {
    EXPECT_EQ(E2M1Value(c), e2m1[c]);
    EXPECT_EQ(E2M1Value(c | 8), -e2m1[c]);
  }
  for (int i = -8192; i <= 8192; ++i) {
    const float v = static_cast<float>(i) / 1024;
    float least = std::numeric_limits<float>::infinity();
    for (uint8_t c = 0; c < 16; ++c) least = std::min(least, std::abs(v - E2M1Value(c)));
    ASSERT_EQ(std::abs(v - E2M1Value(NearestE2M1(v))), least) << v;
  }
  EXPECT_EQ(E2M1Value(NearestE2M1(0.25f)), 0);
  EXPECT_EQ(E2M1Value(NearestE2M1(0.75f)), 1);
  EXPECT_EQ(E2M1Value(NearestE2M1(2.5f)), 2);
  EXPECT_EQ(E2M1Value(NearestE2M1(-5.0f)), -4);
  for (int i = 0; i < 60000; ++i) {
    const float v = std::ldexp(static_cast<float>(1 + i % 1000) / 1000, i / 1000 - 40);
    float least = std::numeric_limits<float>::infinity();
    for (int c = 0; c < 0x7f; ++c) least = std::min(least, std::abs(v - E4M3Value(static_cast<uint8_t>(c))));
    ASSERT_EQ(std::abs(v - E4M3Value(NearestE4M3(v))), least) << v;
  }
}

TEST_F(Schemes, EdgesOfData) {
  for (const float v : {0.0f, 1e-38f, -3.0f, 1e30f}) {
    const std::vector<float> w(64, v);
    for (const Search search : {Search::kNearest, Search::kRefit}) {
      std::vector<float> read(64);
      QuantizeGrid(LpbqForm(32), search, w.data(), 1, 64, nullptr, *team_).Values(0, read.data());
      EXPECT_NEAR(read[0], v, std::abs(v) * 0.07f + 1e-37f) << v;
      for (const Fp4 kind : {Fp4::kMx, Fp4::kNv}) {
        QuantizeFp4(kind, search, w.data(), 1, 64, nullptr, *team_).Values(0, read.data());
        EXPECT_NEAR(read[0], v, std::abs(v) * 0.2f + 1e-37f) << v;
      }
    }
  }
}

}  // namespace
}  // namespace slm::quant
