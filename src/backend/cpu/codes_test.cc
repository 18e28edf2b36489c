// Codes, scales and minimums of every block type against the values of the gguf package's numpy reference
// (tests/tiny/dequant): exact where the file's own codes are taken, within half a step where a type is rounded to 8 bits.
#include "backend/cpu/codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "backend/cpu/packed_matrix.h"
#include "base/float16.h"

namespace slm::backend {
namespace {

struct Codes {
  std::vector<uint8_t> q, sub_min;
  std::vector<float> scale, min, values;
  std::vector<int8_t> sub_scale;
};

Codes Read(DType dtype, const void* blocks, int64_t k) {
  const size_t n = static_cast<size_t>(k);
  Codes c{std::vector<uint8_t>(n, 0xaa), std::vector<uint8_t>(n / 32), std::vector<float>(n / 32, -7),
          std::vector<float>(n / 32),    std::vector<float>(n),        std::vector<int8_t>(n / 16)};
  ReadRowCodes(dtype, static_cast<const std::byte*>(blocks), k,
               {c.q.data(), c.scale.data(), c.min.data(), c.sub_scale.data(), c.sub_min.data(), c.values.data()});
  return c;
}

// What code i means in the kind that the type is packed as, in the f32 arithmetic of the kernels.
float Value(DType dtype, const Codes& c, size_t i) {
  switch (ChooseKind(dtype).kind) {
    case kernels::PackedKind::kQ4: return c.scale[i / 32] * static_cast<float>(c.q[i] - 8);
    case kernels::PackedKind::kQ5: return c.scale[i / 32] * static_cast<float>(c.q[i] - 16);
    case kernels::PackedKind::kQ4Min:
    case kernels::PackedKind::kQ5Min: return c.scale[i / 32] * static_cast<float>(c.q[i]) + c.min[i / 32];
    case kernels::PackedKind::kQ4K:
    case kernels::PackedKind::kQ5K:
      return c.scale[i / 256] * static_cast<float>(c.sub_scale[i / 32]) * static_cast<float>(c.q[i]) +
             c.min[i / 256] * static_cast<float>(c.sub_min[i / 32]);
    case kernels::PackedKind::kQ6K: return c.scale[i / 256] * static_cast<float>(c.sub_scale[i / 16]) * static_cast<float>(c.q[i] - 32);
    default: return c.scale[i / 32] * static_cast<float>(static_cast<int8_t>(c.q[i]));
  }
}

// Types whose values are the file's own.
bool KeepsValues(DType dtype) {
  switch (dtype) {
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL: return true;
    default: return false;
  }
}

class CodesOf : public testing::TestWithParam<DType> {};

TEST_P(CodesOf, MeanTheValuesOfTheReference) {
  const DType dtype = GetParam();
  std::ifstream in(std::string(SLM_SOURCE_DIR) + "/tests/tiny/dequant/" + std::string(Info(dtype).name) + ".bin", std::ios::binary);
  const std::vector<char> file((std::istreambuf_iterator<char>(in)), {});
  const size_t n_blocks = file.size() / (Info(dtype).block_bytes + 4 * Info(dtype).block), n = n_blocks * Info(dtype).block;
  ASSERT_GT(n, 0u);
  std::vector<float> want(n);
  std::memcpy(want.data(), file.data() + n_blocks * Info(dtype).block_bytes, 4 * n);
  const Codes c = Read(dtype, file.data(), static_cast<int64_t>(n));
  size_t checked = 0;
  for (size_t b = 0; b < n / 32; ++b) {
    if (!KeepsValues(dtype)) {
      float top = 0;
      bool finite = true;
      for (size_t i = 32 * b; i < 32 * b + 32; ++i) {
        finite = finite && std::isfinite(want[i]);
        top = std::max(top, std::fabs(want[i]));
      }
      if (!finite || top / 127 >= 65520) {  // halfs end at 65504; 65520 rounds up
        EXPECT_TRUE(std::isnan(c.scale[b])) << "block " << b;
        continue;
      }
    }
    for (size_t i = 32 * b; i < 32 * b + 32; ++i, ++checked) {
      const float got = Value(dtype, c, i);
      if (std::isnan(want[i])) ASSERT_TRUE(std::isnan(got)) << "value " << i;
      else if (KeepsValues(dtype)) ASSERT_EQ(got, want[i]) << "value " << i;
      else ASSERT_LE(std::fabs(double{got} - want[i]), c.scale[b] * 0.50001) << "value " << i << " of " << want[i];
    }
  }
  EXPECT_EQ(KeepsValues(dtype), *ChooseKind(dtype).note == 0);
  EXPECT_GT(checked, n / 2);
}

INSTANTIATE_TEST_SUITE_P(EveryType, CodesOf,
                         testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4,
                                         DType::kTQ1_0, DType::kTQ2_0),
                         [](const auto& i) { return std::string(Info(i.param).name); });

// IQ4_XS, rounded to 8 bits: half scale, 8 sub-scales (2 high bits each, then 4 low bits each; 32 means 0), 128 bytes of codes.
void SetSubScale(std::vector<uint8_t>& block, int j, int sub_scale) {
  const int bits = sub_scale + 32, high = 2 * (j % 4), low = 4 * (j % 2);
  uint8_t &h = block[static_cast<size_t>(2 + j / 4)], &l = block[static_cast<size_t>(4 + j / 2)];
  h = static_cast<uint8_t>((h & ~(3 << high)) | bits >> 4 << high);
  l = static_cast<uint8_t>((l & ~(15 << low)) | (bits & 15) << low);
}
std::vector<uint8_t> IQ4XS(uint16_t d, int sub_scale) {
  std::vector<uint8_t> block(136, 0xff);  // every code 15, which means 113
  for (int j = 0; j < 8; ++j) SetSubScale(block, j, sub_scale);
  std::memcpy(block.data(), &d, 2);
  return block;
}

// What 8 bits and a half scale cannot hold must stay visible as NaN: zero weights would pass for good ones.
TEST(Codes, WhatDoesNotFitBecomesNaN) {
  const struct {
    uint16_t d;
    int sub_scale;
  } cases[] = {{0x7e00, 1}, {0x7c00, 1}, {0xfc00, 1}, {0x7e00, 0}, {0x7bff, 31}};  // NaN, ±infinity, 0 * NaN, 65504 * 31 * 113
  for (const auto& [d, sub_scale] : cases) {
    const auto block = IQ4XS(d, sub_scale);
    const Codes c = Read(DType::kIQ4_XS, block.data(), 256);
    for (size_t b = 0; b < 8; ++b) EXPECT_TRUE(std::isnan(c.scale[b])) << d << " block " << b;
    for (const uint8_t q : c.q) ASSERT_EQ(q, 0);
  }
}

// Sub-scale 1 belongs to values 32 to 63: block 1 overflows a half scale, the others hold 65504 * 113.
TEST(Codes, ABadBlockLeavesItsNeighboursAlone) {
  auto block = IQ4XS(0x7bff, 1);
  SetSubScale(block, 1, 31);
  const Codes c = Read(DType::kIQ4_XS, block.data(), 256);
  for (size_t b = 0; b < 8; ++b) {
    if (b == 1) EXPECT_TRUE(std::isnan(c.scale[b]));
    else EXPECT_NEAR(c.scale[b] * 127, 65504.0 * 113, 65504.0 * 113 * 0x1p-11) << "block " << b;
    for (size_t i = 32 * b; i < 32 * b + 32; ++i) ASSERT_EQ(c.q[i], b == 1 ? 0 : 127);
  }
}

// Scales below the smallest normal half are coarse: rounded down they could not reach the block's largest value.
TEST(Codes, TinyValuesKeepWithinHalfAStep) {
  for (const uint16_t d : std::initializer_list<uint16_t>{0x0001, 0x0002, 0x0003, 0x0010, 0x0123}) {
    for (const int sub_scale : {1, 2, 3, 5}) {
      const auto block = IQ4XS(d, sub_scale);
      const Codes c = Read(DType::kIQ4_XS, block.data(), 256);
      const double want = double{HalfToFloat(d)} * sub_scale * 113;
      for (size_t i = 0; i < 256; ++i)
        ASSERT_LE(std::fabs(double{c.scale[i / 32]} * static_cast<int8_t>(c.q[i]) - want), c.scale[i / 32] * 0.50001)
            << d << " " << sub_scale;
    }
  }
}

}  // namespace
}  // namespace slm::backend
