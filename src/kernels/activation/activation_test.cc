// Activations of every tier against the C library in float64. Bounds: a few ulp of the exact value, plus what rounding the
// argument of the exponential to f32 does to the result (|argument| * 2^-24, relative).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/tiers_for_test.h"
#include "kernels/activation/contract.h"

namespace slm::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = 0x1p-24;

std::vector<Isa> Tiers() { return TiersOf(Activations); }

struct Want {
  double value, argument;  // argument: of the exponential inside
};
Want Exact(double x, int act) {
  if (act == kActSilu) return {x / (1 + std::exp(-x)), x};
  if (act == kActGeluTanh) {
    const double u2 = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    return {x / (1 + std::exp(-u2)), u2};
  }
  return {0.5 * x * std::erfc(-x / std::sqrt(2.0)), x * x / 2};
}

std::vector<float> Inputs() {
  std::vector<float> x;
  for (float v = -30; v <= 30; v += 0.00371f) x.push_back(v);
  for (float v = 1e-38f; v < 1e30f; v *= 3.7f) {
    x.push_back(v);
    x.push_back(-v);
  }
  x.push_back(0.0f);
  return x;
}

TEST(Activation, ActivateMatchesFloat64) {
  const std::vector<float> x = Inputs();
  for (const Isa isa : Tiers()) {
    for (const int act : {kActSilu, kActGeluTanh, kActGeluErf}) {
      std::vector<float> y(x.size() + 1, -7.0f);
      Activations(isa).activate(x.data(), act, static_cast<int64_t>(x.size()), y.data());
      for (size_t i = 0; i < x.size(); ++i) {
        const Want want = Exact(x[i], act);
        // 8 ulp, more where the exponential dominates (negative side); below 2^-126 absolute.
        const double relative = kEps * (12 + (x[i] < 0 ? 4 * std::fabs(want.argument) : 4 * std::min(8.0, std::fabs(want.argument))));
        ASSERT_LE(std::fabs(y[i] - want.value), relative * std::fabs(want.value) + 0x1p-126 * (1 + std::fabs(x[i])))
            << Activations(isa).name << " act " << act << " x " << x[i] << " got " << y[i] << " want " << want.value;
      }
      ASSERT_EQ(y.back(), -7.0f);
    }
  }
}

TEST(Activation, GateIsActivationTimesUpForEveryLength) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 2);
  for (const Isa isa : Tiers()) {
    const ActivationKernels kernels = Activations(isa);
    for (int n = 0; n < 70; ++n) {
      for (const int act : {kActSilu, kActGeluTanh, kActGeluErf}) {
        std::vector<float> g(n), u(n), a(n + 1), y(n + 1, -7.0f);
        for (int i = 0; i < n; ++i) {
          g[i] = normal(rng);
          u[i] = normal(rng);
        }
        kernels.activate(g.data(), act, n, a.data());
        kernels.gate(g.data(), u.data(), act, n, y.data());
        for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] * u[i]) << kernels.name;
        ASSERT_EQ(y[n], -7.0f) << kernels.name;
      }
    }
  }
}

TEST(Activation, AddMulScaleAreExact) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  for (const Isa isa : Tiers()) {
    const ActivationKernels kernels = Activations(isa);
    for (const int n : {0, 1, 7, 8, 9, 16, 40, 101}) {
      std::vector<float> a(n), b(n), y(n + 1, -7.0f);
      for (int i = 0; i < n; ++i) {
        a[i] = normal(rng);
        b[i] = normal(rng);
      }
      kernels.add(a.data(), b.data(), n, y.data());
      for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] + b[i]);
      kernels.mul(a.data(), b.data(), n, y.data());
      for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] * b[i]);
      kernels.scale(a.data(), 2.5f, n, y.data());
      for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], a[i] * 2.5f);
      ASSERT_EQ(y[n], -7.0f);
    }
  }
}

TEST(Activation, SoftcapMatchesTanh) {
  for (const Isa isa : Tiers()) {
    for (const float cap : {1.0f, 30.0f, 50.0f}) {
      std::vector<float> x = Inputs();
      const std::vector<float> before = x;
      Activations(isa).softcap(x.data(), cap, static_cast<int64_t>(x.size()));
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = cap * std::tanh(double{before[i]} / cap);
        ASSERT_LE(std::fabs(x[i] - want), kEps * 10 * std::fabs(want) + 0x1p-126 * cap) << Activations(isa).name << " of " << before[i];
      }
    }
  }
}

TEST(Activation, NonFiniteValuesAreShown) {
  for (const Isa isa : Tiers()) {
    const ActivationKernels kernels = Activations(isa);
    for (const int n : {1, 16, 21}) {
      for (const float bad : {kNan, kInf, -kInf}) {
        std::vector<float> x(n, 0.5f), one(n, 1.0f), y(n);
        x[n - 1] = bad;
        for (const int act : {kActSilu, kActGeluTanh, kActGeluErf}) {
          kernels.activate(x.data(), act, n, y.data());
          ASSERT_FALSE(std::isfinite(y[n - 1])) << kernels.name << " act " << act << " of " << bad;
          if (n > 1) {
            ASSERT_TRUE(std::isfinite(y[n - 2]));
          }
        }
        kernels.softcap(x.data(), 30.0f, n);
        ASSERT_TRUE(std::isnan(x[n - 1])) << kernels.name;
      }
    }
  }
}

TEST(Activation, ArgmaxTakesTheLowestIndexOfTheLargest) {
  std::mt19937 rng(9);
  for (const Isa isa : Tiers()) {
    const ActivationKernels kernels = Activations(isa);
    for (const int n : {1, 2, 7, 8, 15, 16, 17, 100, 1023, 1024, 1025, 2048, 5000}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<float> x(n);
        for (float& v : x) v = static_cast<float>(rng() % 50) - 60.0f;  // many ties, all negative
        int64_t want = 0;
        for (int i = 0; i < n; ++i)
          if (x[i] > x[want]) want = i;
        float value = 0;
        ASSERT_EQ(kernels.argmax(x.data(), n, &value), want) << kernels.name << " n " << n;
        ASSERT_EQ(value, x[want]);
      }
    }
    float value = 0;
    EXPECT_EQ(kernels.argmax(nullptr, 0, &value), -1);
    const float lowest[] = {-std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
    EXPECT_EQ(kernels.argmax(lowest, 2, &value), 0);
  }
}

TEST(Activation, ArgmaxRefusesNonFiniteValuesAnywhere) {
  for (const Isa isa : Tiers()) {
    const int n = 2100;
    for (const int at : {0, 5, 15, 16, 1023, 1024, 2095, 2099}) {
      for (const float bad : {kNan, -kNan, kInf, -kInf}) {
        std::vector<float> x(n, 1.0f);
        x[at] = bad;
        float value;
        ASSERT_EQ(Activations(isa).argmax(x.data(), n, &value), -1) << Activations(isa).name << " " << bad << " at " << at;
      }
    }
  }
}

TEST(Activation, SelectGivesTheTierAskedFor) {
  EXPECT_STREQ(Activations(Isa::kScalar).name, "activation_scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(Activations(Isa::kAvx2).name, "activation_avx2");
  EXPECT_STREQ(Activations(Isa::kAvx512Vnni).name, "activation_avx512vnni");
#elif defined(__aarch64__)
  EXPECT_STREQ(Activations(Isa::kNeonDot).name, "activation_neon_dotprod");
  EXPECT_STREQ(Activations(Isa::kNeonI8mm).name, "activation_neon_dotprod");
#endif
}

}  // namespace
}  // namespace slm::kernels
