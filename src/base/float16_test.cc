// Half and bfloat16 conversions. Digests and single values were made with numpy 2 (float16) and torch (bfloat16): FNV-1a,
// one step a value, NaN left out. NaN rules are IEEE 754's and checked one by one.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slm {
namespace {

class Digest {
 public:
  void Add(uint32_t word) { value_ = (value_ ^ word) * 1099511628211u; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037u;
};

bool IsNan(uint32_t f32_bits) { return (f32_bits & 0x7fffffffu) > 0x7f800000u; }

TEST(Float16, All65536HalvesWiden) {
  Digest d;
  int n = 0;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint32_t bits = std::bit_cast<uint32_t>(HalfToFloat(static_cast<uint16_t>(h)));
    if (IsNan(bits)) continue;
    d.Add(bits);
    ++n;
  }
  EXPECT_EQ(n, 63490);
  EXPECT_EQ(d.value(), 0xa4d3893bfed78fedu);
}

TEST(Float16, AllHalvesSurviveARoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const uint16_t x = static_cast<uint16_t>(h);
    const bool signalling = (x & 0x7c00u) == 0x7c00u && (x & 0x3ffu) != 0 && (x & 0x200u) == 0;
    ASSERT_EQ(FloatToHalf(HalfToFloat(x)), signalling ? x | 0x200u : x) << h;
  }
}

TEST(Float16, RoundingOfSingleValues) {
  const struct {
    float in;
    uint16_t out;
  } table[] = {{0.0f, 0x0},
               {-0.0f, 0x8000},
               {1.0f, 0x3c00},
               {-2.0f, 0xc000},
               {65504.0f, 0x7bff},
               {65519.99609375f, 0x7bff},
               {65520.0f, 0x7c00},
               {1e9f, 0x7c00},
               {5.960464477539063e-08f, 0x1},   // the smallest subnormal
               {2.9802322387695312e-08f, 0x0},  // half of it: ties to even
               {2.980232594040899e-08f, 0x1},   // one f32 ulp more
               {8.940696716308594e-08f, 0x2},   // 1.5 of it
               {6.103515625e-05f, 0x400},       // the smallest normal
               {6.097555160522461e-05f, 0x3ff},
               {0.1f, 0x2e66},
               {0.3333333432674408f, 0x3555},
               {2049.0f, 0x6800},
               {2051.0f, 0x6802}};
  for (const auto& row : table) EXPECT_EQ(FloatToHalf(row.in), row.out) << row.in;
}

TEST(Float16, SpreadOfFloatBitsNarrows) {
  Digest half, bfloat;
  int n = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(i * 2654435761u);
    if (IsNan(bits)) continue;
    half.Add(FloatToHalf(std::bit_cast<float>(bits)));
    bfloat.Add(FloatToBFloat16(std::bit_cast<float>(bits)));
    ++n;
  }
  EXPECT_EQ(n, 199219);
  EXPECT_EQ(half.value(), 0xc2dc2272f3cb61ceu);
  EXPECT_EQ(bfloat.value(), 0xf571068c03c3feau);
}

TEST(Float16, RangeOfHalfNarrows) {
  Digest d;
  for (uint64_t i = 0; i < 200000; ++i) {
    const uint32_t bits = 0x32000000u + static_cast<uint32_t>(i * 1664525u % 0x16000000u);  // 7e-9 ... 131068
    d.Add(FloatToHalf(std::bit_cast<float>(bits)));
  }
  EXPECT_EQ(d.value(), 0xaec66a2596676b3au);
}

TEST(Float16, NanStaysNanAndBecomesQuiet) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu, 0xffbfffffu}) {
    const float f = std::bit_cast<float>(bits);
    const uint16_t h = FloatToHalf(f), b = FloatToBFloat16(f);
    EXPECT_EQ(h & 0x7e00u, 0x7e00u);
    EXPECT_EQ(h >> 15, bits >> 31);
    EXPECT_TRUE(std::isnan(HalfToFloat(h)));
    EXPECT_TRUE(std::isnan(BFloat16ToFloat(b)));
    EXPECT_EQ(b >> 15, bits >> 31);
  }
}

TEST(BFloat16, WideningIsExact) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const uint16_t x = static_cast<uint16_t>(b);
    ASSERT_EQ(std::bit_cast<uint32_t>(BFloat16ToFloat(x)), b << 16);
    if (IsNan(b << 16)) continue;
    ASSERT_EQ(FloatToBFloat16(BFloat16ToFloat(x)), x);
  }
  EXPECT_EQ(FloatToBFloat16(3.4028235e38f), 0x7f80u);  // rounds up to infinity
}

}  // namespace
}  // namespace slm
