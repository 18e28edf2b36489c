// Rotary embedding of every tier against a complex multiplication in float64, both pairings.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <random>
#include <vector>

#include "base/tiers_for_test.h"
#include "kernels/rope/contract.h"

namespace slm::kernels {
namespace {

std::vector<Isa> Tiers() { return TiersOf(Rope); }

void Check(const RopeKernels& kernels, int n_heads, int dim, int rotary, bool interleaved) {
  std::mt19937 rng(static_cast<uint32_t>(dim + rotary));
  std::normal_distribution<float> normal;
  const int half = rotary / 2;
  std::vector<float> x(static_cast<size_t>(n_heads) * dim + 1), cos(half), sin(half);
  for (float& v : x) v = normal(rng);
  for (int i = 0; i < half; ++i) {
    const double angle = 1000 * std::pow(10000.0, -2.0 * i / rotary);
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
  std::vector<float> y = x;
  kernels.rope({y.data(), n_heads, dim, rotary, interleaved, cos.data(), sin.data()});
  for (int h = 0; h < n_heads; ++h) {
    for (int i = 0; i < half; ++i) {
      const int re = h * dim + (interleaved ? 2 * i : i), im = interleaved ? re + 1 : re + half;
      const std::complex<double> want = std::complex<double>(x[re], x[im]) * std::complex<double>(cos[i], sin[i]);
      const double bound = 0x1p-23 * (std::fabs(x[re]) + std::fabs(x[im]));
      ASSERT_NEAR(y[re], want.real(), bound) << kernels.name << " D " << dim << " rotary " << rotary << " pair " << i;
      ASSERT_NEAR(y[im], want.imag(), bound) << kernels.name << " D " << dim << " rotary " << rotary << " pair " << i;
    }
    for (int d = rotary; d < dim; ++d) ASSERT_EQ(y[h * dim + d], x[h * dim + d]) << "value past rotary_dim changed";
  }
  ASSERT_EQ(y.back(), x.back());
}

TEST(Rope, RotatesEachPair) {
  const int dims[][2] = {{64, 64}, {2, 2}, {8, 4}, {80, 32}, {96, 72}, {128, 128}, {128, 96}, {256, 256}, {24, 22}, {64, 0}};
  for (const Isa isa : Tiers())
    for (const auto& d : dims)
      for (const int n_heads : {1, 3})
        for (const bool interleaved : {false, true}) ASSERT_NO_FATAL_FAILURE(Check(Rope(isa), n_heads, d[0], d[1], interleaved));
}

TEST(Rope, PositionZeroChangesNothing) {
  for (const Isa isa : Tiers()) {
    std::vector<float> x(64), cos(32, 1.0f), sin(32, 0.0f);
    for (int i = 0; i < 64; ++i) x[i] = 0.5f * static_cast<float>(i) - 3;
    std::vector<float> y = x;
    Rope(isa).rope({y.data(), 1, 64, 64, true, cos.data(), sin.data()});
    EXPECT_EQ(x, y);
    Rope(isa).rope({y.data(), 1, 64, 64, false, cos.data(), sin.data()});
    EXPECT_EQ(x, y);
  }
}

TEST(Rope, SelectGivesTheTierAskedFor) {
  EXPECT_STREQ(Rope(Isa::kScalar).name, "rope_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(Rope(Isa::kAvx2).name, "rope_avx2");
  EXPECT_STREQ(Rope(Isa::kAvx512Vnni).name, "rope_avx512vnni");
#elif defined(__aarch64__)
  EXPECT_STREQ(Rope(Isa::kNeonDot).name, "rope_neon_dotprod");
  EXPECT_STREQ(Rope(Isa::kNeonI8mm).name, "rope_neon_dotprod");
#endif
}

}  // namespace
}  // namespace slm::kernels
