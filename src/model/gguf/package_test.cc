// Packages whose tables fit together and still cannot be run. What a good one computes: backend/cpu/package_test.cc.
#include "model/gguf/package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/gguf/load.h"

namespace slm::model::gguf {
namespace {
using ::testing::HasSubstr;

// The package of an untied model in which `packed` is only there packed and everything else as it was, read again.
Result<std::shared_ptr<Model>> WithPacked(const Model& m, const std::string& packed, std::vector<std::byte>& bytes) {
  PackageContent content{.layout = 1, .packed = {}, .bytes = {64}, .whole = {}};
  for (const Tensor& t : m.tensors) {
    if (t.name != packed) content.whole.push_back(&t);
    else content.packed.push_back({.kind = 0, .k = t.dims[1], .segments = {{t.name, 0, t.dims[0]}}, .data = {}});
  }
  FileWriter out(64);
  EXPECT_TRUE(DeclarePackage(m, content, &out).ok());
  EXPECT_TRUE(out.Begin([&](std::span<const std::byte> b) -> Status {
                   bytes.insert(bytes.end(), b.begin(), b.end());
                   return Ok();
                 })
                  .ok());
  EXPECT_TRUE(out.Data(std::vector<std::byte>(64)).ok());
  for (const Tensor* t : content.whole) EXPECT_TRUE(out.Data(t->data).ok());
  EXPECT_TRUE(out.Finish().ok());
  auto file = Parse(bytes);
  if (!file.ok()) return file.error();
  return MakeModel(file.Take(), "package", LoadWhat::kAll);
}

TEST(Package, AnUntiedEmbeddingMustBeWhole) {
  auto m = LoadModel(std::string(SLM_SOURCE_DIR) + "/tests/tiny/models/quantized.gguf").Take();
  ASSERT_FALSE(m->config.tied_head);
  std::vector<std::byte> bytes, good;
  EXPECT_TRUE(WithPacked(*m, "output.weight", good).ok());
  const auto r = WithPacked(*m, "token_embd.weight", bytes);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message(), HasSubstr("token_embd.weight"));
}

// A matrix is two-dimensional: what is read as a vector can never be only there packed.
TEST(Package, VectorsAreRefused) {
  auto m = LoadModel(std::string(SLM_SOURCE_DIR) + "/tests/tiny/models/quantized.gguf").Take();
  for (Tensor& t : m->tensors)
    if (t.name == "output_norm.weight") t.dims = {1, t.dims[0]};
  std::vector<std::byte> bytes;
  const auto r = WithPacked(*m, "output_norm.weight", bytes);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message(), HasSubstr("output_norm.weight"));
}

}  // namespace
}  // namespace slm::model::gguf
