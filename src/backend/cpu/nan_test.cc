// A weight that is not a number stops the run, and the error names the layer where it began.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/tiny_for_test.h"

namespace slm::backend {
namespace {

// A folder of its own for each test: the suite runs several times at once.
class NotANumber : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "slm_nan_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Damaged(const std::string& file, const std::string& tensor, DType dtype, const std::string& nan);
  std::filesystem::path folder_;
};

// NaN as f32 and as half, little-endian.
const std::string kNan32("\x00\x00\xc0\x7f", 4), kNan16("\x00\x7e", 2);

// A copy of a tiny GGUF whose `tensor` begins with `nan`.
std::string NotANumber::Damaged(const std::string& file, const std::string& tensor, DType dtype, const std::string& nan) {
  const std::string source = TinyPath(file);
  auto model = model::LoadModel(source).Take();
  const model::Tensor* t = model->FindName(tensor);
  EXPECT_NE(t, nullptr) << tensor;
  const auto offset = t->data.data() - model->files[0].bytes().data();
  std::ifstream in(source, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(t->dtype, dtype);
  bytes.replace(static_cast<size_t>(offset), nan.size(), nan);
  const auto path = folder_ / "damaged.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}

Error ErrorOf(const std::string& path, ComputeMode compute, size_t n_tokens) {
  CpuOptions o;
  o.n_threads = 2;
  o.context = 32;
  o.compute = compute;
  o.isa = TestIsa();
  auto b = OpenTiny(path, {}, o);
  const std::vector<int32_t> prompt{5, 6, 7, 8, 9};
  auto l = b->Forward(std::span(prompt).first(n_tokens), LogitsOf::kLastToken);
  EXPECT_FALSE(l.ok());
  EXPECT_EQ(b->used(), 0) << "the failed call takes no slot";
  return l.ok() ? Error(Code::kInternal, "") : l.error();
}

TEST_F(NotANumber, NamesTheLayer) {
  const std::string path = Damaged("llama.gguf", "blk.1.ffn_norm.weight", DType::kF32, kNan32);
  for (const auto compute : {ComputeMode::kNative, ComputeMode::kF32})
    for (const size_t n : {size_t{1}, size_t{5}}) {
      const Error e = ErrorOf(path, compute, n);
      EXPECT_EQ(e.code(), Code::kCorrupt);
      EXPECT_NE(e.message().find("layer 1"), std::string::npos) << e.message();
    }
}

TEST_F(NotANumber, InABlockScaleNamesTheLayer) {
  const std::string path = Damaged("quantized.gguf", "blk.1.ffn_down.weight", DType::kQ8_0, kNan16);
  for (const auto compute : {ComputeMode::kNative, ComputeMode::kF32})
    for (const size_t n : {size_t{1}, size_t{5}}) {
      const Error e = ErrorOf(path, compute, n);
      EXPECT_EQ(e.code(), Code::kCorrupt);
      EXPECT_NE(e.message().find("layer 1 (layers.1.down_proj)"), std::string::npos) << e.message();
    }
}

TEST_F(NotANumber, NamesWhatStandsOutsideTheLayers) {
  const std::string path = Damaged("llama.gguf", "output_norm.weight", DType::kF32, kNan32);
  const Error e = ErrorOf(path, ComputeMode::kF32, 5);
  EXPECT_NE(e.message().find("final_norm"), std::string::npos) << e.message();
}

}  // namespace
}  // namespace slm::backend
