// The quantizer of a group: signal to noise against a table that was simulated elsewhere, and what holds for every group.
#include "quant/grid.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "quant/samples_for_test.h"

namespace slm::quant {
namespace {

double SignalToNoise(const GridSpec& spec, const std::vector<float>& w, size_t group) {
  double noise = 0, power = 0;
  for (size_t i = 0; i < w.size(); i += group) {
    const std::span<const float> part(w.data() + i, group);
    noise += AssignCodes(ChooseGrid(spec, part), spec.bits, part, nullptr, nullptr);
    for (const float v : part) power += static_cast<double>(v) * static_cast<double>(v);
  }
  return 10 * std::log10(power / noise);
}

struct OracleRow {
  const char* name;
  Scheme scheme;
  Search search;
  double gaussian[4], student[4];  // dB at groups of 16, 32, 64, 128
};
// Simulated with numpy, 2^20 samples; given to a tenth of a decibel.
constexpr OracleRow kOracle[] = {
    {"symmetric", Scheme::kSymmetric, Search::kNearest, {21.4, 20.3, 19.4, 18.6}, {20.0, 18.3, 16.8, 15.4}},
    {"signed extreme", Scheme::kSignedExtreme, Search::kNearest, {22.4, 21.3, 20.5, 19.7}, {21.1, 19.4, 17.9, 16.5}},
    {"signed extreme, refit", Scheme::kSignedExtreme, Search::kRefit, {23.1, 21.9, 20.9, 20.3}, {21.6, 19.8, 18.4, 17.1}},
    {"integer zero", Scheme::kIntegerZero, Search::kNearest, {23.2, 21.9, 20.8, 20.0}, {22.5, 20.7, 19.1, 17.6}},
    {"integer zero, refit", Scheme::kIntegerZero, Search::kRefit, {23.8, 22.3, 21.2, 20.5}, {23.0, 21.0, 19.4, 18.0}},
    {"float min, refit", Scheme::kFloatMin, Search::kRefit, {25.1, 23.1, 21.7, 20.6}, {24.4, 21.9, 19.9, 18.2}},
};

TEST(Grid, SignalToNoiseIsThatOfTheOracle) {
  constexpr double kTenth = 0.1, kBetter = 0.15;  // a search that finds more than the table's is no fault
  Samples random(5);
  std::vector<float> gaussian(1 << 20), student(1 << 20);
  for (float& v : gaussian) v = static_cast<float>(random.Gaussian());
  for (float& v : student) v = static_cast<float>(random.StudentT5());
  for (const OracleRow& row : kOracle)
    for (size_t g = 0; g < 4; ++g) {
      SCOPED_TRACE(std::string(row.name) + ", groups of " + std::to_string(16 << g));
      const GridSpec spec{row.scheme, 4, row.search, Store::kF32};
      const double a = SignalToNoise(spec, gaussian, size_t{16} << g), b = SignalToNoise(spec, student, size_t{16} << g);
      const double above = row.search == Search::kRefit ? kBetter : kTenth;
      EXPECT_GE(a, row.gaussian[g] - kTenth);
      EXPECT_LE(a, row.gaussian[g] + above);
      EXPECT_GE(b, row.student[g] - kTenth);
      EXPECT_LE(b, row.student[g] + above);
    }
}

constexpr Scheme kSchemes[] = {Scheme::kSymmetric, Scheme::kSignedExtreme, Scheme::kIntegerZero, Scheme::kFloatMin, Scheme::kNegativeMin};

// The error of a grid, computed the long way: every value against every code.
double SlowError(const Grid& grid, int bits, std::span<const float> w, const float* u) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    double best = std::numeric_limits<double>::infinity();
    for (int q = 0; q < 1 << bits; ++q) {
      const double d = static_cast<double>(w[i]) - static_cast<double>(ValueOf(grid, q));
      best = std::min(best, d * d);
    }
    sum += best * (u ? static_cast<double>(u[i]) : 1.0);
  }
  return sum;
}

TEST(Grid, RefitIsNeverWorseThanNearestAndCodesAreTheNearest) {
  Samples random(6);
  for (int round = 0; round < 1500; ++round) {
    const size_t sizes[] = {1, 7, 16, 32, 64, 100, 128, 256, 576};
    const size_t n = sizes[round % 9];
    const int bits = 2 + round % 7;
    std::vector<float> w(n), u(n);
    const double shift = random.Gaussian() * (round % 3), spread = std::exp(1.5 * random.Gaussian());
    for (float& v : w) v = static_cast<float>((random.StudentT5() + shift) * spread);
    for (float& v : u) v = static_cast<float>(random.Uniform() < 0.1 ? 0.0 : std::exp(2 * random.Gaussian()));
    for (const Scheme scheme : kSchemes)
      for (const float* weights : {static_cast<const float*>(nullptr), static_cast<const float*>(u.data())})
        for (const Store store : {Store::kF32, Store::kF16}) {
          SCOPED_TRACE(testing::Message() << "scheme " << static_cast<int>(scheme) << " bits " << bits << " n " << n << " round " << round);
          const Grid nearest = ChooseGrid({scheme, bits, Search::kNearest, store}, w, weights);
          const Grid refit = ChooseGrid({scheme, bits, Search::kRefit, store}, w, weights);
          std::vector<uint8_t> codes(n);
          const double error = AssignCodes(refit, bits, w, weights, codes.data());
          ASSERT_LE(error, AssignCodes(nearest, bits, w, weights, nullptr));
          const double slow = SlowError(refit, bits, w, weights);
          ASSERT_NEAR(error, slow, 1e-4 * slow + 1e-9 * spread * spread);
          for (const uint8_t q : codes) ASSERT_LT(q, 1 << bits);
          if (scheme == Scheme::kNegativeMin) {
            ASSERT_LE(refit.min, 0);
          }
          if (scheme == Scheme::kSymmetric || scheme == Scheme::kIntegerZero) {
            ASSERT_GE(refit.scale, 0);
          }
          if (scheme != Scheme::kFloatMin && scheme != Scheme::kNegativeMin) {
            ASSERT_EQ(refit.min, 0);
          }
        }
  }
}

TEST(Grid, DegenerateGroups) {
  for (const Scheme scheme : kSchemes)
    for (const Search search : {Search::kNearest, Search::kRefit}) {
      SCOPED_TRACE(testing::Message() << "scheme " << static_cast<int>(scheme) << " search " << static_cast<int>(search));
      const GridSpec spec{scheme, 4, search, Store::kF32};
      std::vector<float> w(32, 0.0f);
      EXPECT_EQ(AssignCodes(ChooseGrid(spec, w), 4, w, nullptr, nullptr), 0) << "all zero";
      w.assign(32, 1e-38f);
      EXPECT_LT(AssignCodes(ChooseGrid(spec, w), 4, w, nullptr, nullptr), 1e-70) << "below what a scale can hold";
      for (const float v : {-3.0f, 5.0f}) {  // a constant, and one outlier among zeros: both lie on every grid
        w.assign(32, v);
        EXPECT_NEAR(AssignCodes(ChooseGrid(spec, w), 4, w, nullptr, nullptr), 0, 1e-9) << "constant " << v;
        w.assign(32, 0.0f);
        w[11] = v;
        EXPECT_NEAR(AssignCodes(ChooseGrid(spec, w), 4, w, nullptr, nullptr), 0, 1e-9) << "outlier " << v;
      }
    }
}

TEST(Grid, WeightZeroTakesAValueOutOfTheError) {
  // Fifteen values on a grid, and one far away that counts for nothing.
  std::vector<float> w(16), u(16, 1.0f);
  for (int i = 0; i < 15; ++i) w[static_cast<size_t>(i)] = static_cast<float>(i) * 0.25f;
  w[15] = 4.5f;
  u[15] = 0;
  const Grid grid = ChooseGrid({Scheme::kFloatMin, 4, Search::kRefit, Store::kF32}, w, u.data());
  EXPECT_LT(AssignCodes(grid, 4, w, u.data(), nullptr), 1e-9);
  EXPECT_GT(AssignCodes(ChooseGrid({Scheme::kFloatMin, 4, Search::kRefit, Store::kF32}, w), 4, w, u.data(), nullptr), 1e-4);
}

}  // namespace
}  // namespace slm::quant
