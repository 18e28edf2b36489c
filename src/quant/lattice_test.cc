// Lattices by arithmetic: what is s * t is found, what is not is not; and grids that hold a lattice hold it without loss.
#include "quant/lattice.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/float16.h"
#include "quant/grid.h"

namespace slm::quant {
namespace {

float AsHalf(float v) { return HalfToFloat(FloatToHalf(v)); }
float AsBf16(float v) { return BFloat16ToFloat(FloatToBFloat16(v)); }

// Groups of 32: scale (an f16) times whole numbers of [low, high], all of them where the group has room.
std::vector<float> Group(std::mt19937& rng, int low, int high, float (*stored)(float)) {
  const float scale = AsHalf(std::uniform_real_distribution<float>(0.001f, 0.1f)(rng));
  std::uniform_int_distribution<int> code(low, high);
  std::vector<float> w(32);
  for (float& v : w) v = stored(scale * static_cast<float>(code(rng)));
  return w;
}
float Whole(float v) { return v; }

TEST(Lattice, WhatLiesOnOneIsFound) {
  std::mt19937 rng(3);
  for (auto stored : {&Whole, &AsHalf, &AsBf16})
    for (const auto& [low, high] : {std::pair(-1, 1), std::pair(-2, 1), std::pair(-7, 7), std::pair(-8, 7), std::pair(-3, 12)})
      for (int i = 0; i < 200; ++i) {
        const std::vector<float> w = Group(rng, low, high, stored);
        const auto l = LatticeOf(w);
        ASSERT_TRUE(l) << low << " to " << high << ", group " << i;
        EXPECT_LE(l->high - l->low, high - low);
        const double rounding = stored == &AsBf16 ? 0x1p-8 : stored == &AsHalf ? 0x1p-11 : 0x1p-23;
        for (const float v : w) {
          const double t = std::nearbyint(static_cast<double>(v) / l->step);
          EXPECT_NEAR(t * l->step, static_cast<double>(v), 2 * rounding * std::abs(static_cast<double>(v)));
        }
      }
}

TEST(Lattice, OtherWeightsLieOnNone) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal(0, 0.02f);
  for (auto stored : {&Whole, &AsHalf, &AsBf16})
    for (int i = 0; i < 2000; ++i) {
      std::vector<float> w(32);
      for (float& v : w) v = stored(normal(rng));
      EXPECT_FALSE(LatticeOf(w));
      std::vector<float> few(w);  // few values, not evenly spaced
      for (size_t j = 0; j < few.size(); ++j) few[j] = w[j % 12];
      if (stored == &AsBf16) continue;
      EXPECT_FALSE(LatticeOf(few));
    }
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(LatticeOf(Group(rng, -127, 127, &Whole))) << "eight bits";
    std::vector<float> w = Group(rng, 0, 15, &Whole);
    for (float& v : w) v -= 0.0321f;  // a minimum that is no multiple of the scale
    EXPECT_FALSE(LatticeOf(w));
  }
  EXPECT_FALSE(LatticeOf(std::vector<float>(32, 0.0f)));
  EXPECT_FALSE(LatticeOf(std::vector<float>(32, 0.5f)));
  EXPECT_FALSE(LatticeOf(std::vector<float>{1.0f, std::bit_cast<float>(0x7fc00000u)}));
}

struct Case {
  Scheme scheme;
  int bits, low, high;
};
TEST(Lattice, GridsThatHoldItLoseNothing) {
  std::mt19937 rng(5);
  for (const Case& c : {Case{Scheme::kSymmetric, 4, -1, 1}, Case{Scheme::kSymmetric, 4, -8, 7}, Case{Scheme::kSymmetric, 8, -8, 7},
                        Case{Scheme::kSymmetric, 2, -1, 1}, Case{Scheme::kSignedExtreme, 4, -1, 1}, Case{Scheme::kSignedExtreme, 4, -7, 8},
                        Case{Scheme::kSignedExtreme, 5, -7, 7}, Case{Scheme::kIntegerZero, 4, -1, 1}, Case{Scheme::kIntegerZero, 4, -3, 12},
                        Case{Scheme::kIntegerZero, 2, -1, 1}, Case{Scheme::kIntegerZero, 8, -7, 7}, Case{Scheme::kFloatMin, 4, -1, 1},
                        Case{Scheme::kFloatMin, 4, -8, 7}, Case{Scheme::kFloatMin, 5, -7, 7}})
    for (int i = 0; i < 300; ++i) {
      const std::vector<float> w = Group(rng, c.low, c.high, &Whole);
      std::vector<float> u(w.size(), 1.0f);
      u[3] = 1e-3f;
      for (const float* weights : {static_cast<const float*>(nullptr), static_cast<const float*>(u.data())}) {
        const Grid g = ChooseGrid({c.scheme, c.bits, Search::kRefit, Store::kF16}, w, weights);
        EXPECT_EQ(AssignCodes(g, c.bits, w, nullptr, nullptr), 0)
            << static_cast<int>(c.scheme) << " " << c.low << " " << c.high << " " << i;
      }
    }
}

}  // namespace
}  // namespace slm::quant
