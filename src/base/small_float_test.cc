// Values from the OCP specifications (tables of E4M3, E5M2, E2M1 and the FP6 formats) and ONNX's page on float8.
#include "base/small_float.h"

#include <gtest/gtest.h>

namespace slm {
namespace {

struct Row {
  SmallFloat format;
  unsigned code;
  double value;
};

TEST(SmallFloat, CodesOfTheSpecification) {
  const Row rows[] = {
      {kE4m3fn, 0x7e, 448},   {kE4m3fn, 0x08, 0x1p-6},    {kE4m3fn, 0x01, 0x1p-9},  {kE4m3fn, 0x07, 0.875 * 0x1p-6},
      {kE5m2, 0x7b, 57344},   {kE5m2, 0x04, 0x1p-14},     {kE5m2, 0x01, 0x1p-16},   {kE5m2, 0xfc, -HUGE_VAL},
      {kE4m3fnuz, 0x7f, 240}, {kE4m3fnuz, 0x01, 0x1p-10}, {kE5m2fnuz, 0x7f, 57344}, {kE5m2fnuz, 0x01, 0x1p-17},
      {kE2m1, 0x7, 6},        {kE2m1, 0x1, 0.5},          {kE2m1, 0xa, -1},         {kE2m3, 0x1f, 7.5},
      {kE2m3, 0x01, 0.125},   {kE3m2, 0x1f, 28},          {kE3m2, 0x01, 0.0625},
  };
  for (const Row& r : rows) {
    EXPECT_EQ(SmallFloatValue(r.format, r.code), r.value) << r.code;
    EXPECT_EQ(RoundToSmallFloat(r.format, r.value, Overflow::kSpecial), r.value) << r.code;
  }
  for (const auto& [format, code] : {std::pair{kE4m3fn, 0x7fu}, {kE4m3fn, 0xffu}, {kE5m2, 0x7du}, {kE4m3fnuz, 0x80u}, {kE5m2fnuz, 0x80u}})
    EXPECT_TRUE(std::isnan(SmallFloatValue(format, code))) << code;
}

TEST(SmallFloat, RoundsToTheNearestEvenCode) {
  const auto round = [](const SmallFloat& f, double x) { return RoundToSmallFloat(f, x, Overflow::kSaturate); };
  EXPECT_EQ(round(kE2m1, 2.5), 2);  // between 2 (code 4) and 3 (code 5)
  EXPECT_EQ(round(kE2m1, 3.5), 4);
  EXPECT_EQ(round(kE2m1, 0.25), 0);
  EXPECT_EQ(round(kE2m1, 0.75), 1);
  EXPECT_EQ(round(kE4m3fn, 17), 16);
  EXPECT_EQ(round(kE4m3fn, 19), 20);
  EXPECT_EQ(round(kE4m3fn, 0x1.8p-10), 0x1p-9);
  EXPECT_EQ(round(kE5m2, -0x1p-17), -0.0);
}

TEST(SmallFloat, WhatIsTooLarge) {
  EXPECT_EQ(RoundToSmallFloat(kE4m3fn, 464, Overflow::kSpecial), 448);  // half way to 480, the code of NaN, is the even 448
  EXPECT_TRUE(std::isnan(RoundToSmallFloat(kE4m3fn, 465, Overflow::kSpecial)));
  EXPECT_EQ(RoundToSmallFloat(kE4m3fn, -1e9, Overflow::kSaturate), -448);
  EXPECT_EQ(RoundToSmallFloat(kE5m2, 1e9, Overflow::kSpecial), HUGE_VAL);
  EXPECT_EQ(RoundToSmallFloat(kE5m2, HUGE_VAL, Overflow::kSaturate), 57344);
  EXPECT_TRUE(std::isnan(RoundToSmallFloat(kE5m2fnuz, HUGE_VAL, Overflow::kSpecial)));
  EXPECT_EQ(RoundToSmallFloat(kE2m1, HUGE_VAL, Overflow::kSpecial), 6);
}

}  // namespace
}  // namespace slm
