// Codes, scales and zero points of every block type against the values of the gguf package's numpy reference (tests/tiny/dequant).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "exporter/genai/initializers.h"

namespace slm::exporter {
namespace {

class BlockMatrixOf : public testing::TestWithParam<DType> {};

TEST_P(BlockMatrixOf, HoldsTheValuesOfTheReference) {
  const DTypeInfo info = Info(GetParam());
  std::ifstream in(SLM_SOURCE_DIR "/tests/tiny/dequant/" + std::string(info.name) + ".bin", std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  const size_t n_blocks = file.size() / (info.block_bytes + 4 * size_t{info.block});
  ASSERT_GT(n_blocks, 1u);
  const int64_t k = info.block * 2, n = static_cast<int64_t>(n_blocks / 2);  // rows of two blocks
  model::Tensor t;
  t.dtype = GetParam();
  t.dims = {n, k};
  t.data = std::as_bytes(std::span(file)).first(static_cast<size_t>(n) * 2 * info.block_bytes);
  const graph::Constant c{.parts = {{&t, 0, n}}, .data = {}};
  ASSERT_EQ(FormOf(c), Stored::kBlocks);
  const BlockMatrix m = ReadBlocks(c);
  ASSERT_EQ(m.n, n);
  ASSERT_EQ(m.k, k);
  ASSERT_TRUE(m.bits == 4 || m.bits == 8);
  const char* wanted = file.data() + n_blocks * info.block_bytes;
  for (int64_t i = 0; i < n * k; ++i) {
    float want = 0;
    std::memcpy(&want, wanted + 4 * i, 4);
    if (!std::isfinite(want)) continue;  // of scales beyond f32, which no model has
    const auto at = static_cast<size_t>(i / m.block);
    const int byte = m.codes[static_cast<size_t>(m.bits == 8 ? i : i / 2)], code = m.bits == 8 ? byte : byte >> (4 * (i % 2)) & 15;
    const float offset = m.offsets.empty() ? 0 : m.offsets[at], scaled = m.scales[at] * static_cast<float>(code - (1 << (m.bits - 1)));
    // Exact but for the rounding of the offset, and of the sum here.
    const double bound = m.offsets.empty() ? 0 : 1.3e-7 * (std::fabs(scaled) + std::fabs(offset));
    ASSERT_LE(std::fabs(double{scaled + offset} - want), bound + 1.3e-7 * std::fabs(want)) << "value " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockMatrixOf,
                         testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4,
                                         DType::kTQ1_0, DType::kTQ2_0),
                         [](const auto& type) { return std::string(Info(type.param).name); });

}  // namespace
}  // namespace slm::exporter
