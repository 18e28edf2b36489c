// The encoders: what model::Dequantize (equal to the `gguf` package to the bit) reads back is the grid that was meant, and no
// further from the weights than the plain rounding of the formats' reference encoders.
#include "quant/ggml_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "model/model.h"

namespace slm::quant {
namespace {

std::vector<float> Weights(size_t n, unsigned seed) {
  std::mt19937 bits(seed);
  std::vector<float> w(n);
  for (float& v : w) {  // a sum of uniforms: near a Gaussian; one in 64 is large
    float sum = -2;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits() >> 8) * 0x1p-24f;
    v = 0.05f * sum * (bits() % 64 == 0 ? 6.0f : 1.0f);
  }
  return w;
}

std::vector<float> ThroughBytes(DType dtype, Search search, const std::vector<float>& w, const float* u = nullptr) {
  std::vector<std::byte> bytes(RowBytes(dtype, w.size()));
  EncodeRow(dtype, search, w, u, bytes.data());
  std::vector<float> out(w.size());
  model::Dequantize(dtype, bytes, 0, static_cast<int64_t>(w.size()), out.data());
  return out;
}

double Error(const std::vector<float>& w, const std::vector<float>& v, const float* u = nullptr) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double d = static_cast<double>(w[i]) - static_cast<double>(v[i]);
    sum += d * d * (u ? static_cast<double>(u[i]) : 1.0);
  }
  return sum;
}
double RelativeError(const std::vector<float>& w, const std::vector<float>& v) {
  return std::sqrt(Error(w, v) / Error(w, std::vector<float>(w.size())));
}

TEST(GgmlBlocks, SmallBlocksHoldTheGridThatWasMeant) {
  const struct {
    DType dtype;
    GridSpec spec;
  } rows[] = {{DType::kQ4_0, {Scheme::kSignedExtreme, 4, Search::kRefit, Store::kF16}},
              {DType::kQ4_1, {Scheme::kFloatMin, 4, Search::kRefit, Store::kF16}},
              {DType::kQ5_0, {Scheme::kSignedExtreme, 5, Search::kRefit, Store::kF16}},
              {DType::kQ5_1, {Scheme::kFloatMin, 5, Search::kRefit, Store::kF16}},
              {DType::kQ8_0, {Scheme::kSymmetric, 8, Search::kRefit, Store::kF16}}};
  const std::vector<float> w = Weights(32 * 40, 1);
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(Info(row.dtype).name));
    const std::vector<float> read = ThroughBytes(row.dtype, Search::kRefit, w);
    for (size_t b = 0; b < w.size(); b += 32) {
      const std::span<const float> part(w.data() + b, 32);
      const Grid grid = ChooseGrid(row.spec, part);
      uint8_t q[32];
      AssignCodes(grid, row.spec.bits, part, nullptr, q);
      for (size_t i = 0; i < 32; ++i) ASSERT_EQ(read[b + i], ValueOf(grid, q[i])) << "block " << b / 32 << " value " << i;
    }
  }
}

// The root mean square error of rounding to an even grid is step / sqrt(12); the step follows from the group's range. A layout
// that were written wrongly would put values in other places, with errors many times that.
TEST(GgmlBlocks, EveryTypeComesBackWithTheErrorOfItsSteps) {
  const std::vector<float> w = Weights(256 * 64, 2);
  enum class Over { kExtreme, kRange };
  const struct {
    DType dtype;
    size_t group;
    Over over;
    double steps;
  } rows[] = {{DType::kQ4_0, 32, Over::kExtreme, 8}, {DType::kQ4_1, 32, Over::kRange, 15},    {DType::kQ5_0, 32, Over::kExtreme, 16},
              {DType::kQ5_1, 32, Over::kRange, 31},  {DType::kQ8_0, 32, Over::kExtreme, 127}, {DType::kQ4_K, 32, Over::kRange, 15},
              {DType::kQ6_K, 16, Over::kExtreme, 32}};
  for (const auto& row : rows) {
    ASSERT_TRUE(CanEncode(row.dtype));
    double expected = 0;
    for (size_t i = 0; i < w.size(); i += row.group) {
      const auto [low, high] = std::minmax_element(w.begin() + static_cast<int64_t>(i), w.begin() + static_cast<int64_t>(i + row.group));
      const double span = row.over == Over::kRange ? *high - *low : std::max(*high, -*low), step = span / row.steps;
      expected += static_cast<double>(row.group) * step * step / 12;
    }
    EXPECT_LE(Error(w, ThroughBytes(row.dtype, Search::kRefit, w)), expected) << Info(row.dtype).name;
    EXPECT_LE(Error(w, ThroughBytes(row.dtype, Search::kNearest, w)), 1.1 * expected) << Info(row.dtype).name;
  }
  EXPECT_EQ(ThroughBytes(DType::kF32, Search::kRefit, w), w);
  EXPECT_LE(RelativeError(w, ThroughBytes(DType::kF16, Search::kRefit, w)), 0x1p-11);
}

TEST(GgmlBlocks, RefitIsNeverWorseThanNearest) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const std::vector<float> w = Weights(256, 100 + seed);
    std::vector<float> u = Weights(256, 200 + seed);
    for (float& v : u) v = v * v;
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K})
      for (const float* weights : {static_cast<const float*>(nullptr), static_cast<const float*>(u.data())}) {
        const double refit = Error(w, ThroughBytes(dtype, Search::kRefit, w, weights), weights);
        const double nearest = Error(w, ThroughBytes(dtype, Search::kNearest, w, weights), weights);
        EXPECT_LE(refit, nearest * (1 + 1e-6)) << Info(dtype).name << " seed " << seed;
      }
  }
}

TEST(GgmlBlocks, Degenerate) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K})
    for (const Search search : {Search::kNearest, Search::kRefit}) {
      SCOPED_TRACE(std::string(Info(dtype).name));
      std::vector<float> w(256, 0.0f);
      EXPECT_EQ(ThroughBytes(dtype, search, w), w) << "all zero";
      for (const float v : {0.75f, -0.75f}) {
        w.assign(256, 0.0f);
        w[77] = v;
        EXPECT_LT(Error(w, ThroughBytes(dtype, search, w)), 1e-4) << "one value of " << v;
        w.assign(256, v);
        EXPECT_LT(RelativeError(w, ThroughBytes(dtype, search, w)), 1e-3) << "constant " << v;
      }
    }
}

}  // namespace
}  // namespace slm::quant
