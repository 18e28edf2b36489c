#include "kernels/quantize/contract.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/tiers_for_test.h"
#include "kernels/activation/contract.h"
#include "kernels/norm/contract.h"
#include "kernels/packed/contract.h"
#include "kernels/packed/matmul_check.h"

namespace slm::kernels {
namespace {

constexpr double kUnit = 0x1p-24;  // rounding unit of f32
constexpr int kSilu = 0, kGeluTanh = 1, kGeluErf = 2;

std::vector<QuantizeKernels> Tiers() {
  std::vector<QuantizeKernels> all;
  for (const Isa isa : TiersOf(Quantize)) all.push_back(Quantize(isa));
  return all;
}

// A quantized row in memory of exactly the promised size.
struct Row {
  explicit Row(int n, check::Touch touch = check::Touch::kEnd)
      : q(PaddedK(n), touch),
        scale(PaddedK(n) / 8, touch),
        sum(PaddedK(n) / 8, touch),
        residual(PaddedK(n) / 32 * sizeof(ResidualBlock), touch),
        count(4, touch),
        n_padded(PaddedK(n)) {
    std::memset(q.As<int8_t>(), 0x55, n_padded);
    *count.As<int32_t>() = -5;
  }
  Q8Row View() const { return {q.As<int8_t>(), scale.As<float>(), sum.As<int32_t>(), residual.As<ResidualBlock>(), count.As<int32_t>()}; }
  std::string Bytes() const {
    std::string all(q.As<char>(), n_padded);
    all.append(scale.As<char>(), n_padded / 8).append(sum.As<char>(), n_padded / 8);
    for (int32_t i = 0; i < *count.As<int32_t>(); ++i) {
      const ResidualBlock& r = residual.As<ResidualBlock>()[i];
      all.append(reinterpret_cast<const char*>(&r), offsetof(ResidualBlock, block) + sizeof(r.block));
    }
    return all.append(count.As<char>(), 4);
  }
  check::Guarded q, scale, sum, residual, count;
  size_t n_padded;
};

std::vector<float> Values(int n, uint32_t seed, float scale) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back((static_cast<float>(Mix(seed, static_cast<uint32_t>(i)) % 2000001) / 1e6f - 1) * scale);
  return x;
}

// Values of which one in 64 is an outlier, so that some blocks have residuals.
std::vector<float> Spiked(int n, uint32_t seed, float scale) {
  std::vector<float> x = Values(n, seed, scale);
  for (size_t i = 0; i < x.size(); ++i)
    if (Mix(seed + 1, static_cast<uint32_t>(i)) % 64 == 0) x[i] *= 20;
  return x;
}

struct Input {
  check::Guarded memory;
  explicit Input(const std::vector<float>& v) : memory(v.size() * 4, check::Touch::kEnd) {
    std::memcpy(memory.As<float>(), v.data(), v.size() * 4);
  }
  float* data() const { return memory.As<float>(); }
};

double Exact(double x, int act) {
  if (act == kSilu) return x / (1 + std::exp(-x));
  if (act == kGeluTanh) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

// From the roundings of each form (quantize/avx2.cc): a handful on the result, one per unit of exponent where exp amplifies the
// error of its argument, and for erf the 1.5e-7 of Abramowitz & Stegun 7.1.26 on Phi's tail, halved, times |x|.
double Bound(double x, int act) {
  const double y = std::fabs(Exact(x, act));
  if (act == kSilu) return 10 * kUnit * y;
  const double self = std::fabs(x) * 0x1p-52;  // 1 + tanh cancels even in double
  if (act == kGeluTanh) return self + (10 + 4 * std::fabs(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) * kUnit * y;
  return 10 * kUnit * y + std::fabs(x) * (0.75e-7 + 10 * kUnit * 0.5 * std::erfc(std::fabs(x) / std::sqrt(2.0)) * (1 + x * x));
}

}  // namespace

TEST(Quantize, RoundsHalfToEvenAndScalesByTheLargest) {
  std::vector<float> x(32, 0.0f);
  const float in[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -126.5f, 3.49f};
  const int want[] = {127, 0, 2, 2, 0, -2, -2, -126, 3};
  std::copy(std::begin(in), std::end(in), x.begin());
  for (const QuantizeKernels& tier : Tiers()) {
    Row row(32);
    tier.quantize(x.data(), 32, row.View());
    int sum = 0;
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(row.View().q[i], want[i]) << tier.name << " " << i;
      sum += want[i];
    }
    EXPECT_EQ(row.View().scale[0], 1.0f);
    EXPECT_EQ(row.View().sum[0], sum);
    for (int i = 9; i < 64; ++i) EXPECT_EQ(row.View().q[i], 0);
    EXPECT_EQ(row.View().scale[1], 0.0f) << "padding";
    EXPECT_EQ(row.View().sum[1], 0);
  }
}

TEST(Quantize, EveryTierGivesTheSameBytesAndStaysInside) {
  for (int n : {1, 7, 31, 32, 33, 63, 64, 65, 172, 576, 640, 896, 960, 1152})
    for (float scale : {1.0f, 1e-20f, 1e-29f, 3e-31f, 1e-38f, 1e30f, 1e37f}) {
      const Input x(Spiked(n, 11, scale));
      Row want(n);
      Quantize(Isa::kScalar).quantize(x.data(), n, want.View());
      for (const QuantizeKernels& tier : Tiers())
        for (check::Touch touch : {check::Touch::kEnd, check::Touch::kStart}) {
          Row got(n, touch);
          tier.quantize(x.data(), n, got.View());
          ASSERT_EQ(want.Bytes(), got.Bytes()) << tier.name << " n " << n << " scale " << scale;
        }
    }
}

TEST(Quantize, ErrorIsHalfAStepAtMost) {
  const int n = 4096;
  const std::vector<float> x = Values(n, 12, 7.0f);
  for (const QuantizeKernels& tier : Tiers()) {
    Row row(n);
    const Q8Row r = row.View();
    tier.quantize(x.data(), n, r);
    for (int i = 0; i < n; ++i) {
      ASSERT_LE(std::abs(r.q[i]), 127);
      const double step = r.scale[i / 32];  // three roundings: the inverse, the product, the scale
      ASSERT_NEAR(r.q[i] * step, x[i], step * (0.5 + 127 * 4 * kUnit)) << tier.name << " " << i;
    }
    for (int b = 0; b < n / 32; ++b) {
      int sum = 0;
      for (int i = 0; i < 32; ++i) sum += r.q[b * 32 + i];
      ASSERT_EQ(r.sum[b], sum);
    }
  }
}

// A block of codes (peak 127, so the scale is 1) on either side of the crest factor that calls for a residual.
TEST(Quantize, ResidualExactlyAboveTheCrestFactor) {
  const int limit = static_cast<int>(32 * 127 * 127 / (kCrest * kCrest));
  int seen[2] = {};
  for (int extra = -3; extra <= 3; ++extra) {
    std::vector<float> x(64, 0.0f);
    x[40] = -127;
    int left = limit + extra - 127 * 127;
    for (size_t i = 32; i < 64 && left > 0; ++i) {
      if (i == 40) continue;
      const int root = static_cast<int>(std::sqrt(static_cast<double>(left)));
      x[i] = static_cast<float>(root);
      left -= root * root;
    }
    ASSERT_EQ(left, 0);
    const bool peaked = 127 / std::sqrt((limit + extra) / 32.0) > kCrest;
    ++seen[peaked];
    for (const QuantizeKernels& tier : Tiers()) {
      Row row(64);
      tier.quantize(x.data(), 64, row.View());
      ASSERT_EQ(*row.View().residual_count, peaked) << tier.name << " squares " << limit + extra;
      if (!peaked) continue;
      EXPECT_EQ(row.View().residual[0].block, 1);
      EXPECT_EQ(row.View().residual[0].sum, 0) << "whole numbers leave nothing";
    }
  }
  EXPECT_GT(seen[0], 0);
  EXPECT_GT(seen[1], 0);
}

TEST(Quantize, ResidualsLeaveHalfOfTheirOwnStep) {
  const int n = 4096;
  const std::vector<float> x = Spiked(n, 18, 3.0f);
  for (const QuantizeKernels& tier : Tiers()) {
    Row row(n);
    const Q8Row r = row.View();
    tier.quantize(x.data(), n, r);
    ASSERT_GT(*r.residual_count, n / 32 / 10);
    ASSERT_LT(*r.residual_count, n / 32);
    for (int i = 0; i < *r.residual_count; ++i) {
      const ResidualBlock& e = r.residual[i];
      ASSERT_TRUE(i == 0 || e.block > r.residual[i - 1].block) << "blocks rise";
      ASSERT_NEAR(e.scale * 254, r.scale[e.block], r.scale[e.block] * 2 * kUnit);
      int sum = 0;
      for (int j = 0; j < 32; ++j) {
        ASSERT_LE(std::abs(e.q[j]), 127);
        sum += e.q[j];
        const double got = double{r.scale[e.block]} * r.q[e.block * 32 + j] + double{e.scale} * e.q[j];
        ASSERT_NEAR(got, x[static_cast<size_t>(e.block * 32 + j)], e.scale * (0.5 + 127 * 8 * kUnit)) << tier.name;
      }
      ASSERT_EQ(e.sum, sum);
    }
  }
}

TEST(Quantize, NanAndInfinityShowInTheScale) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const QuantizeKernels& tier : Tiers())
    for (float bad : {nan, -nan, inf, -inf})
      for (int at : {0, 17, 31, 45}) {
        std::vector<float> x = Values(64, 13, 1.0f);
        x[static_cast<size_t>(at)] = bad;
        Row row(64);
        tier.quantize(x.data(), 64, row.View());
        EXPECT_TRUE(std::isnan(row.View().scale[at / 32])) << tier.name;
        EXPECT_FALSE(std::isnan(row.View().scale[1 - at / 32])) << tier.name;
        EXPECT_EQ(*row.View().residual_count, 0) << tier.name;
        std::vector<float> ones(64, 1.0f);
        tier.gate_quantize(x.data(), ones.data(), kSilu, 64, row.View());
        EXPECT_TRUE(!std::isnan(bad) || std::isnan(row.View().scale[at / 32])) << tier.name;
      }
}

// Bound: each of 32 partial sums takes n / 32 roundings and the tree 5 more; the root halves their relative error; mean, eps,
// root, quotient and two products add 6.
TEST(RmsNormQuantize, MatchesDoublePrecisionAndAllTiersAgree) {
  for (int n : {1, 33, 172, 576, 2048}) {
    const Input x(Values(n, 14, 3.0f)), w(Values(n, 15, 2.0f));
    double squares = 0;
    for (int i = 0; i < n; ++i) squares += double{x.data()[i]} * x.data()[i];
    const double r = 1 / std::sqrt(squares / n + double{1e-5f}), rel = ((n / 32 + 6) / 2.0 + 6) * kUnit;
    Row want(n);
    std::vector<float> y_want(static_cast<size_t>(n));
    Quantize(Isa::kScalar).rms_norm_quantize(x.data(), w.data(), 1e-5f, n, y_want.data(), want.View());
    for (const QuantizeKernels& tier : Tiers()) {
      Row got(n), again(n), silent(n), in_place(n);
      const Input y(std::vector<float>(static_cast<size_t>(n), 9.0f)), z(std::vector<float>(x.data(), x.data() + n));
      tier.rms_norm_quantize(x.data(), w.data(), 1e-5f, n, y.data(), got.View());
      for (int i = 0; i < n; ++i) {
        const double exact = x.data()[i] * r * w.data()[i];
        ASSERT_NEAR(y.data()[i], exact, std::fabs(exact) * rel) << tier.name << " n " << n;
        ASSERT_EQ(y.data()[i], y_want[static_cast<size_t>(i)]) << tier.name << " n " << n;
      }
      ASSERT_EQ(want.Bytes(), got.Bytes()) << tier.name << " n " << n;
      tier.quantize(y.data(), n, again.View());
      EXPECT_EQ(got.Bytes(), again.Bytes()) << "fused differs from norm, then quantize";
      tier.rms_norm_quantize(x.data(), w.data(), 1e-5f, n, nullptr, silent.View());
      EXPECT_EQ(got.Bytes(), silent.Bytes());
      tier.rms_norm_quantize(z.data(), w.data(), 1e-5f, n, z.data(), in_place.View());
      EXPECT_EQ(got.Bytes(), in_place.Bytes());
      EXPECT_EQ(0, std::memcmp(z.data(), y.data(), static_cast<size_t>(n) * 4));
    }
  }
}

// A block with one value other than zero stores it in its scale: 127 * scale, two roundings away.
TEST(GateQuantize, ActivationsMatchDoublePrecision) {
  std::vector<float> points;
  for (double x = -100; x <= 100; x += 0.37) points.push_back(static_cast<float>(x));
  for (double x = 1e-6; x < 12; x *= 1.03) {
    points.push_back(static_cast<float>(x));
    points.push_back(static_cast<float>(-x));
  }
  const int n = static_cast<int>(points.size()) * 32;
  std::vector<float> gate(static_cast<size_t>(n), 0.0f), up(static_cast<size_t>(n), 0.0f);
  for (size_t i = 0; i < points.size(); ++i) {
    gate[i * 32 + i % 32] = points[i];
    up[i * 32 + i % 32] = -2.0f;
  }
  for (const QuantizeKernels& tier : Tiers())
    for (int act : {kSilu, kGeluTanh, kGeluErf}) {
      Row row(n);
      tier.gate_quantize(gate.data(), up.data(), act, n, row.View());
      for (size_t i = 0; i < points.size(); ++i) {
        const double exact = Exact(points[i], act) * -2;
        if (std::fabs(exact) < 2e-30) continue;  // the block counts as zero
        const double got = double{row.View().scale[i]} * row.View().q[i * 32 + i % 32];
        ASSERT_NEAR(got, exact, 2 * Bound(points[i], act) + 3 * kUnit * std::fabs(exact) + 1e-30)
            << tier.name << " act " << act << " x " << points[i];
      }
    }
}

TEST(GateQuantize, TailsStayInside) {
  for (int n : {1, 31, 33, 172})
    for (const QuantizeKernels& tier : Tiers())
      for (int act : {kSilu, kGeluTanh, kGeluErf}) {
        const Input gate(Values(n, 16, 6.0f)), up(Values(n, 17, 1.0f));
        Row row(n);
        tier.gate_quantize(gate.data(), up.data(), act, n, row.View());
        for (int i = 0; i < n; ++i) {
          const double exact = Exact(gate.data()[i], act) * up.data()[i], step = row.View().scale[i / 32];
          ASSERT_NEAR(row.View().q[i] * step, exact, step * 0.501 + std::fabs(up.data()[i]) * Bound(gate.data()[i], act)) << tier.name;
        }
        for (int64_t i = n; i < PaddedK(n); ++i) ASSERT_EQ(row.View().q[i], 0);
      }
}

// Whether the graph was fused must not show in the result.
TEST(Quantize, FusedStepsGiveTheBitsOfSeparateOnes) {
  for (const Isa isa : TiersOf(Quantize)) {
    const QuantizeKernels kernels = Quantize(isa);
    for (int n : {1, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 100, 172, 576, 1536, 2050}) {
      const std::vector<float> x = Spiked(n, 19, 6.0f), w = Values(n, 20, 2.0f);
      std::vector<float> y(static_cast<size_t>(n));
      Row separate(n), fused(n);
      Norm(isa).rms_norm(x.data(), w.data(), 1e-5f, n, y.data());
      kernels.quantize(y.data(), n, separate.View());
      kernels.rms_norm_quantize(x.data(), w.data(), 1e-5f, n, nullptr, fused.View());
      ASSERT_EQ(separate.Bytes(), fused.Bytes()) << kernels.name << " norm n " << n;
      for (int act : {kSilu, kGeluTanh, kGeluErf}) {
        Activations(isa).gate(x.data(), w.data(), act, n, y.data());
        kernels.quantize(y.data(), n, separate.View());
        kernels.gate_quantize(x.data(), w.data(), act, n, fused.View());
        ASSERT_EQ(separate.Bytes(), fused.Bytes()) << kernels.name << " act " << act << " n " << n;
      }
    }
  }
}

TEST(Quantize, SelectsTheTierThatWasAskedFor) {
  EXPECT_STREQ(Quantize(Isa::kScalar).name, "quantize_s8_f32_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(Quantize(Isa::kAvx2).name, "quantize_s8_f32_avx2");
  EXPECT_STREQ(Quantize(Isa::kAvx512Vnni).name, "quantize_s8_f32_avx512vnni");
  EXPECT_STREQ(Quantize(Isa::kAvx512Amx).name, "quantize_s8_f32_avx512vnni");
  EXPECT_STREQ(Quantize(Isa::kNeonDot).name, "quantize_s8_f32_scalar");
#elif defined(__aarch64__)
  EXPECT_STREQ(Quantize(Isa::kNeonDot).name, "quantize_s8_f32_neon_dotprod");
  EXPECT_STREQ(Quantize(Isa::kNeonI8mm).name, "quantize_s8_f32_neon_dotprod");
  EXPECT_STREQ(Quantize(Isa::kAvx512Vnni).name, "quantize_s8_f32_scalar");
#endif
}

}  // namespace slm::kernels
