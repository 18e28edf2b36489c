// Bounds and rounding that no node test asks for. Values: IEEE 754 (a half has 11 significant bits), OCP's E8M0.
#include "reference/array.h"

#include <gtest/gtest.h>

#include <limits>

#include "reference/heads.h"

namespace slm::reference {
namespace {

TEST(Array, EmptyShapesAreBoundedToo) {
  EXPECT_EQ(Count({int64_t{1} << 40, 0}).error().code(), Code::kLimit);
  EXPECT_EQ(Count({3, 0, 2}).value(), 0);
  EXPECT_EQ(Count({3, 2}).value(), 6);
}

TEST(Array, HalvesAreRoundedOnce) {
  // 1 + 2^-11 is half-way between two halves: as little more as 2^-24 decides, which f32 would drop.
  EXPECT_EQ(RoundTo(ElementType::kFloat16, 1 + 0x1p-11 + 0x1p-24), 1 + 0x1p-10);
  EXPECT_EQ(RoundTo(ElementType::kFloat16, 1 + 0x1p-11), 1.0);
  EXPECT_EQ(RoundTo(ElementType::kFloat16, 65519.0), 65504.0);
  EXPECT_EQ(RoundTo(ElementType::kFloat16, -65520.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(ElementType::kFloat16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(RoundTo(ElementType::kBfloat16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
}

TEST(Array, ScalesAreTheNearestPowerOfTwo) {
  EXPECT_EQ(RoundTo(ElementType::kFloat8E8m0, 1.45), 1.0);
  EXPECT_EQ(RoundTo(ElementType::kFloat8E8m0, 1.5), 2.0);
}

TEST(Array, HeadsMustFillTheWidth) {
  Array x;
  x.dims = {1, 1, 0};
  EXPECT_EQ(HeadsOf(x, int64_t{1} << 62).error().code(), Code::kCorrupt);
  EXPECT_EQ(HeadsOf(x, 1).error().code(), Code::kCorrupt);
  x.dims = {1, 2, 6};
  EXPECT_EQ(HeadsOf(x, 3).value().width, 2);
}

}  // namespace
}  // namespace slm::reference
