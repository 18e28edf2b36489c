// A package computes the same bits as the model that it was made from, from its mapped bytes; damaged tables are refused.
#include "backend/cpu/package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "backend/cpu/tiny_for_test.h"
#include "kernels/packed/contract.h"

namespace slm::backend {
namespace {
using ::testing::HasSubstr;

const std::vector<int32_t> kPrompt{20, 48, 76, 55, 74, 43, 21, 20, 46, 49};

class PackageFile {
 public:
  explicit PackageFile(const std::string& model_path, const std::string& suffix = "")
      : path_(::testing::TempDir() + "package_test_" + std::to_string(::getpid()) + suffix + ".slm") {
    auto m = model::LoadModel(model_path).Take();
    auto g = graph::BuildDecoder(m, {.max_context = 1}).Take();
    EXPECT_TRUE(graph::RunPasses(g, {}).ok());
    std::string bytes;
    auto r = WritePackage(g, 2, [&](std::span<const std::byte> b) -> Status {
      bytes.append(reinterpret_cast<const char*>(b.data()), b.size());
      return Ok();
    });
    EXPECT_TRUE(r.ok()) << r.error().message();
    if (r.ok()) report_ = r.Take();
    EXPECT_EQ(report_.bytes, static_cast<int64_t>(bytes.size()));
    bytes_ = std::move(bytes);
    Write(bytes_);
  }
  ~PackageFile() { std::remove(path_.c_str()); }
  void Write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  // The file with the first `from` after a key's name replaced.
  void Replace(const std::string& key, const std::string& from, const std::string& to) {
    std::string changed = bytes_;
    const size_t at = changed.find(from, changed.find(key));
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, from.size(), to);
    Write(changed);
  }
  const std::string& path() const { return path_; }
  const std::string& bytes() const { return bytes_; }
  const PackageReport& report() const { return report_; }

 private:
  std::string path_, bytes_;
  PackageReport report_;
};

CpuOptions Options(ComputeMode compute = ComputeMode::kNative) {
  CpuOptions o;
  o.n_threads = 2;
  o.context = 64;
  o.isa = TestIsa();
  o.compute = compute;
  o.logits = LogitsOf::kAllTokens;
  return o;
}

std::vector<float> Rows(const std::string& path, const CpuOptions& o, const std::vector<std::string>& passes_off = {}) {
  auto b = OpenTiny(path, passes_off, o);
  return b ? AllRows(*b, kPrompt, kPrompt.size()) : std::vector<float>{};
}

// GGUF of every block type, tied and untied; folders with split and with fused projections; a head of its own.
class Package : public ::testing::TestWithParam<const char*> {};

TEST_P(Package, ComputesTheSameBits) {
  const PackageFile file(TinyPath(GetParam()));
  const auto want = Rows(TinyPath(GetParam()), Options());
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(Rows(file.path(), Options()), want);
}

TEST_P(Package, IsMappedNotPackedAgain) {
  const PackageFile file(TinyPath(GetParam()));
  auto m = model::LoadModel(file.path());
  ASSERT_TRUE(m.ok()) << m.error().message();
  EXPECT_EQ(m.value()->format, "package");
  EXPECT_GT(file.report().matrices, 0);
  size_t packed = 0;
  for (const auto& w : m.value()->packed) packed += w.data.size();
  EXPECT_EQ(packed, static_cast<size_t>(file.report().weights_bytes));
  for (const auto& t : m.value()->tensors) EXPECT_EQ(t.data.empty(), t.packed_bytes > 0) << t.name;
}

// Without the passes that stack projections a product reads a part of the stacked matrix.
TEST_P(Package, RunsWithoutPasses) {
  const PackageFile file(TinyPath(GetParam()));
  EXPECT_EQ(Rows(file.path(), Options(), {"all"}), Rows(TinyPath(GetParam()), Options(), {"all"}));
}

// The packed codes stand for the source's values exactly (the types of these files lose nothing), also one by one.
TEST_P(Package, UnpacksToTheSameValues) {
  const PackageFile file(TinyPath(GetParam()));
  EXPECT_TRUE(file.report().notes.empty());
  EXPECT_EQ(Rows(file.path(), Options(ComputeMode::kF32)), Rows(TinyPath(GetParam()), Options(ComputeMode::kF32)));
}

INSTANTIATE_TEST_SUITE_P(All, Package,
                         ::testing::Values("quantized.gguf", "quantized_tied.gguf", "llama", "phi3", "gemma3", "qwen2", "llama3_rope.gguf",
                                           "phi3.gguf"));

// A copy of a tied folder that holds the head as well, as some trainers write it: a tensor with the embedding's bytes.
class TiedFolderWithHead {
 public:
  TiedFolderWithHead() : path_(::testing::TempDir() + "package_test_tied_" + std::to_string(::getpid())) {
    std::filesystem::copy(TinyPath("qwen2"), path_, std::filesystem::copy_options::recursive);
    const auto m = model::LoadModel(TinyPath("qwen2")).Take();
    const model::Tensor& embedding = *m->Find(model::Role::kEmbedding);
    EXPECT_EQ(m->Find(model::Role::kHead), nullptr) << "the model this is made from has a head already";
    const std::string weights = path_ + "/model.safetensors";
    std::ifstream in(weights, std::ios::binary);
    const std::string old((std::istreambuf_iterator<char>(in)), {});
    uint64_t n = 0;
    std::memcpy(&n, old.data(), 8);
    const size_t data = old.size() - 8 - n;
    std::string header = old.substr(8, n);
    header.resize(header.rfind('}'));
    header += ",\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[" + std::to_string(embedding.dims[0]) + "," +
              std::to_string(embedding.dims[1]) + "],\"data_offsets\":[" + std::to_string(data) + "," +
              std::to_string(data + embedding.data.size()) + "]}}";
    while (header.size() % 8 != 0) header += ' ';
    const uint64_t size = header.size();
    std::ofstream(weights, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << header << old.substr(8 + n)
                                             << std::string(reinterpret_cast<const char*>(embedding.data.data()), embedding.data.size());
  }
  ~TiedFolderWithHead() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(TiedPackage, OfAFolderThatHoldsItsHeadToo) {
  const TiedFolderWithHead folder;
  const auto want = Rows(TinyPath("qwen2"), Options());
  ASSERT_FALSE(want.empty());
  ASSERT_EQ(Rows(folder.path(), Options()), want);
  const PackageFile file(folder.path());
  EXPECT_EQ(Rows(file.path(), Options()), want);
  EXPECT_EQ(file.report().weights_bytes, PackageFile(TinyPath("qwen2"), ".twin").report().weights_bytes) << "the head is stored once";
}

std::string U32(uint32_t v) { return {reinterpret_cast<const char*>(&v), 4}; }
std::string I64(int64_t v) { return {reinterpret_cast<const char*>(&v), 8}; }

std::string OpenError(const std::string& path) {
  auto m = model::LoadModel(path);
  if (!m.ok()) return m.error().message();
  auto g = graph::BuildDecoder(m.value(), {.max_context = 64});
  if (!g.ok()) return g.error().message();
  if (Status s = graph::RunPasses(g.value(), {}); !s.ok()) return s.error().message();
  auto b = CreateCpuBackend(g.value(), Options());
  return b.ok() ? "" : b.error().message();
}

TEST(PackageErrors, NameWhatIsWrong) {
  PackageFile file(TinyPath("quantized.gguf"));
  ASSERT_EQ(OpenError(file.path()), "");
  file.Replace("slmkit.package.version", U32(1), U32(7));
  EXPECT_THAT(OpenError(file.path()), HasSubstr("package version 7"));
  file.Replace("slmkit.package.layout", U32(kernels::kPackedLayoutId), U32(99));
  EXPECT_THAT(OpenError(file.path()), HasSubstr("layout 99"));
  file.Replace("slmkit.packed.segment.end", I64(32), I64(1 << 20));
  EXPECT_THAT(OpenError(file.path()), HasSubstr("rows 0 to 1048576"));
  file.Replace("slmkit.packed.segment.end", I64(32), I64(INT64_MIN));
  EXPECT_THAT(OpenError(file.path()), HasSubstr("rows 0 to -9223372036854775808"));
  file.Replace("slmkit.packed.k", "slmkit.packed.k", "slmkit.packed.q");
  EXPECT_THAT(OpenError(file.path()), HasSubstr("slmkit.packed.k"));
}

// A cut file never opens, wherever it is cut.
TEST(PackageErrors, CutShort) {
  PackageFile file(TinyPath("quantized_tied.gguf"));
  for (size_t n = 0; n + 4096 < file.bytes().size(); n += 1 + file.bytes().size() / 40) {  // the end may be padding
    file.Write(file.bytes().substr(0, n));
    EXPECT_NE(OpenError(file.path()), "") << n;
  }
}

TEST(PackageErrors, APackageIsNoSource) {
  PackageFile file(TinyPath("quantized.gguf"));
  auto m = model::LoadModel(file.path()).Take();
  auto g = graph::BuildDecoder(m, {.max_context = 1}).Take();
  ASSERT_TRUE(graph::RunPasses(g, {}).ok());
  auto r = WritePackage(g, 1, [](std::span<const std::byte>) -> Status { return Ok(); });
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.error().message(), HasSubstr("cannot be the source of a package"));
}

}  // namespace
}  // namespace slm::backend
