// The factorisation: L L^T is the matrix again, for any size, tier and number of threads.
#include "quant/factor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/tiers_for_test.h"

namespace slm::quant {
namespace {

std::vector<double> Moments(int64_t n, int64_t samples, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> a(static_cast<size_t>(n * n)), x(static_cast<size_t>(n));
  for (int64_t s = 0; s < samples; ++s) {
    for (double& v : x) v = normal(rng);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) a[static_cast<size_t>(i * n + j)] += x[static_cast<size_t>(i)] * x[static_cast<size_t>(j)];
  }
  return a;
}

TEST(Factor, TimesItsTransposeIsTheMatrix) {
  const auto team = ThreadTeam::Create(3);
  for (const Isa isa : RunnableTiers())
    for (const int64_t n : {1, 5, 63, 64, 65, 128, 200, 333}) {
      const std::vector<double> a = Moments(n, n + 20, static_cast<uint64_t>(n));
      std::vector<double> l = a;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = i + 1; j < n; ++j) l[static_cast<size_t>(i * n + j)] = NAN;  // never read
      ASSERT_TRUE(FactorLower(l.data(), n, n, isa, *team.value()));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j <= i; ++j) {
          long double sum = 0, size = 0;
          for (int64_t k = 0; k <= j; ++k) {
            const long double p =
                static_cast<long double>(l[static_cast<size_t>(i * n + k)]) * static_cast<long double>(l[static_cast<size_t>(j * n + k)]);
            sum += p;
            size += std::fabs(p);
          }
          // Higham, Accuracy and Stability, theorem 10.3: the backward error of any order of the sums is below gamma_(n + 1) |L| |L^T|.
          ASSERT_NEAR(static_cast<double>(sum), a[static_cast<size_t>(i * n + j)],
                      static_cast<double>(size) * static_cast<double>(n + 2) * 0x1p-53)
              << IsaName(isa) << " n " << n << " at " << i << ", " << j;
        }
    }
}

TEST(Factor, SameBitsForAnyNumberOfThreads) {
  const int64_t n = 300;
  std::vector<double> first;
  for (const int threads : {1, 2, 4}) {
    const auto team = ThreadTeam::Create(threads);
    std::vector<double> l = Moments(n, 2 * n, 9);
    ASSERT_TRUE(FactorLower(l.data(), n, n, BestIsa(DetectCpu()), *team.value()));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) l[static_cast<size_t>(i * n + j)] = 0;
    if (first.empty()) first = l;
    EXPECT_EQ(l, first);
  }
}

TEST(Factor, RefusesWhatIsNotPositiveDefinite) {
  const auto team = ThreadTeam::Create(2);
  for (const int64_t broken : {0, 70, 129}) {
    const int64_t n = 130;
    std::vector<double> a = Moments(n, 2 * n, 3);
    a[static_cast<size_t>(broken * (n + 1))] = broken == 70 ? NAN : -1;
    EXPECT_FALSE(FactorLower(a.data(), n, n, Isa::kScalar, *team.value())) << broken;
  }
  std::vector<double> singular = Moments(100, 40, 4);  // rank 40
  EXPECT_FALSE(FactorLower(singular.data(), 100, 100, Isa::kScalar, *team.value()));
}

}  // namespace
}  // namespace slm::quant
