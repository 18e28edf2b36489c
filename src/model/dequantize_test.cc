// Dequantize against the values of the gguf package's numpy reference: tests/tiny/dequant, made by tests/tiny/make_dequant.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/model.h"

namespace slm::model {
namespace {

std::vector<char> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class DequantizeFixture : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    file_ = ReadFile(SLM_SOURCE_DIR "/tests/tiny/dequant/" + std::string(Info(GetParam()).name) + ".bin");
    ASSERT_FALSE(file_.empty());
    const size_t per_block = Info(GetParam()).block_bytes + 4 * size_t{Info(GetParam()).block};
    ASSERT_EQ(file_.size() % per_block, 0u);
    n_blocks_ = file_.size() / per_block;
    n_values_ = static_cast<int64_t>(n_blocks_ * Info(GetParam()).block);
  }
  std::span<const std::byte> blocks() const { return std::as_bytes(std::span(file_)).first(n_blocks_ * Info(GetParam()).block_bytes); }
  // Bits of the wanted value i.
  uint32_t Want(int64_t i) const {
    uint32_t w;
    std::memcpy(&w, file_.data() + blocks().size() + 4 * static_cast<size_t>(i), 4);
    return w;
  }
  std::vector<char> file_;
  size_t n_blocks_ = 0;
  int64_t n_values_ = 0;
};

TEST_P(DequantizeFixture, IsBitEqualToTheReference) {
  std::vector<float> got(static_cast<size_t>(n_values_));
  Dequantize(GetParam(), blocks(), 0, n_values_, got.data());
  for (int64_t i = 0; i < n_values_; ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[static_cast<size_t>(i)]), Want(i)) << "value " << i << ": " << got[static_cast<size_t>(i)];
}

TEST_P(DequantizeFixture, APartHasTheValuesOfTheWhole) {
  const int64_t block = Info(GetParam()).block;
  for (int64_t begin = 0; begin < n_values_; begin += 3 * block) {
    const int64_t end = std::min(begin + 2 * block, n_values_);
    std::vector<float> got(static_cast<size_t>(end - begin + 1), -77.0f);
    Dequantize(GetParam(), blocks(), begin, end, got.data());
    for (int64_t i = begin; i < end; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(got[static_cast<size_t>(i - begin)]), Want(i));
    ASSERT_EQ(got.back(), -77.0f) << "wrote past the end";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantizeFixture,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                         DType::kIQ4_XS, DType::kMXFP4, DType::kTQ1_0, DType::kTQ2_0),
                         [](const auto& p) { return std::string(Info(p.param).name); });

template <class T>
void ExpectNumbers(DType dtype, const std::vector<T>& values) {
  std::vector<float> got(values.size());
  Dequantize(dtype, std::as_bytes(std::span(values)), 0, static_cast<int64_t>(values.size()), got.data());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(values[i]));
}

TEST(Dequantize, PlainNumbers) {
  ExpectNumbers<int8_t>(DType::kI8, {-128, -1, 0, 127});
  ExpectNumbers<int16_t>(DType::kI16, {-32768, 0, 32767});
  ExpectNumbers<int32_t>(DType::kI32, {INT32_MIN, 0, 16777217});
  ExpectNumbers<int64_t>(DType::kI64, {INT64_MIN, 0, 1});
  ExpectNumbers<double>(DType::kF64, {0.1, -1e30, 1e-300});
}

}  // namespace
}  // namespace slm::model
