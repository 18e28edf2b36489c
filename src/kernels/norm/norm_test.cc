// RMSNorm of every tier against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/tiers_for_test.h"
#include "kernels/norm/contract.h"

namespace slm::kernels {
namespace {

std::vector<Isa> Tiers() { return TiersOf(Norm); }

constexpr int kWidths[] = {1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 127, 576, 640, 1024, 2304, 2305};

std::vector<float> Normal(int n, uint32_t seed, float spread) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.1f, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

void ExpectNorm(const std::vector<float>& x, const std::vector<float>& w, float eps, const float* y, const char* name) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  const double r = 1 / std::sqrt(sum / static_cast<double>(x.size()) + double{eps});
  // n / 16 roundings of a sum of positive terms, halved by the root; then five roundings of single operations.
  const double bound = 0x1p-24 * (8 + static_cast<double>(x.size()) / 32);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = x[i] * r * w[i];
    ASSERT_LE(std::fabs(y[i] - want), bound * std::fabs(want) + 1e-44) << name << " n " << x.size() << " at " << i;
  }
}

TEST(Norm, MatchesFloat64) {
  for (const Isa isa : Tiers()) {
    const NormKernels kernels = Norm(isa);
    for (const int n : kWidths) {
      for (const float spread : {1.0f, 1e-4f, 1e5f}) {
        const std::vector<float> x = Normal(n, 1, spread), w = Normal(n, 2, 1);
        std::vector<float> y(static_cast<size_t>(n) + 1, -7.0f);
        kernels.rms_norm(x.data(), w.data(), 1e-6f, n, y.data());
        ASSERT_NO_FATAL_FAILURE(ExpectNorm(x, w, 1e-6f, y.data(), kernels.name));
        EXPECT_EQ(y.back(), -7.0f) << kernels.name << " wrote past the row";
        std::vector<float> in_place = x;
        kernels.rms_norm(in_place.data(), w.data(), 1e-6f, n, in_place.data());
        for (int i = 0; i < n; ++i) ASSERT_EQ(in_place[i], y[i]);
      }
    }
  }
}

TEST(Norm, AddThenNormMatchesBothSteps) {
  for (const Isa isa : Tiers()) {
    const NormKernels kernels = Norm(isa);
    for (const int n : kWidths) {
      const std::vector<float> x = Normal(n, 3, 1), d = Normal(n, 4, 2), w = Normal(n, 5, 1);
      std::vector<float> sum = x, y(static_cast<size_t>(n) + 1, -7.0f);
      sum.push_back(-7.0f);
      kernels.add_rms_norm(sum.data(), d.data(), w.data(), 1e-5f, n, y.data());
      EXPECT_EQ(sum.back(), -7.0f);
      EXPECT_EQ(y.back(), -7.0f);
      sum.pop_back();
      for (int i = 0; i < n; ++i) ASSERT_EQ(sum[i], x[i] + d[i]) << kernels.name;
      ASSERT_NO_FATAL_FAILURE(ExpectNorm(sum, w, 1e-5f, y.data(), kernels.name));
    }
  }
}

// Many rows: the last bit of a sum in another order mostly vanishes in the root, one row in twelve shows it.
TEST(Norm, EveryTierGivesTheSameBits) {
  for (const int n : kWidths)
    for (uint32_t seed = 0; seed < 16; ++seed) {
      const std::vector<float> x = Normal(n, 6 + 3 * seed, 3), d = Normal(n, 7 + 3 * seed, 1), w = Normal(n, 8 + 3 * seed, 1);
      std::vector<float> sum(static_cast<size_t>(n)), want(static_cast<size_t>(n)), want_added(static_cast<size_t>(n)),
          got(static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) sum[i] = x[i] + d[i];
      Norm(Isa::kScalar).rms_norm(x.data(), w.data(), 1e-6f, n, want.data());
      Norm(Isa::kScalar).rms_norm(sum.data(), w.data(), 1e-6f, n, want_added.data());
      for (const Isa isa : Tiers()) {
        Norm(isa).rms_norm(x.data(), w.data(), 1e-6f, n, got.data());
        for (int i = 0; i < n; ++i) ASSERT_EQ(want[i], got[i]) << Norm(isa).name << " n " << n;
        std::vector<float> added = x;
        Norm(isa).add_rms_norm(added.data(), d.data(), w.data(), 1e-6f, n, got.data());
        for (int i = 0; i < n; ++i) ASSERT_EQ(want_added[i], got[i]) << Norm(isa).name << " added, n " << n;
      }
    }
}

TEST(Norm, EpsilonBoundsARowOfZeros) {
  for (const Isa isa : Tiers()) {
    std::vector<float> x(20, 0.0f), w(20, 3.0f), y(20, 1.0f);
    Norm(isa).rms_norm(x.data(), w.data(), 1e-6f, 20, y.data());
    for (const float v : y) EXPECT_EQ(v, 0.0f);
  }
}

TEST(Norm, OneBadValueSpoilsTheRow) {
  for (const Isa isa : Tiers()) {
    for (const int at : {0, 16, 99}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> x(100, 1.0f), w(100, 1.0f), y(100);
        x[at] = bad;
        Norm(isa).rms_norm(x.data(), w.data(), 1e-6f, 100, y.data());
        EXPECT_TRUE(std::isnan(y[at])) << Norm(isa).name;
      }
    }
  }
}

TEST(Norm, SelectGivesTheTierAskedFor) {
  EXPECT_STREQ(Norm(Isa::kScalar).name, "norm_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(Norm(Isa::kAvx2).name, "norm_avx2");
  EXPECT_STREQ(Norm(Isa::kAvx512Vnni).name, "norm_avx512vnni");
#elif defined(__aarch64__)
  EXPECT_STREQ(Norm(Isa::kNeonDot).name, "norm_neon_dotprod");
  EXPECT_STREQ(Norm(Isa::kNeonI8mm).name, "norm_neon_dotprod");
#endif
}

}  // namespace
}  // namespace slm::kernels
