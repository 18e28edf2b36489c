// Hadamard matrices by their definition; models that were turned give the logits of the model that they came from.
#include "quant/rotation/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>

#include "backend/cpu/cpu.h"
#include "base/tiers_for_test.h"
#include "graph/graph.h"
#include "quant/rotation/hadamard.h"

namespace slm::quant {
namespace {

TEST(Hadamard, RowsAreOrthogonal) {
  for (const int64_t n : {1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 60, 64, 128, 256, 576, 640, 896, 960, 1152}) {
    const auto signs = HadamardSigns(n);
    ASSERT_TRUE(signs.ok()) << n;
    const std::vector<int8_t>& h = signs.value();
    ASSERT_EQ(h.size(), static_cast<size_t>(n * n));
    for (const int8_t s : h) ASSERT_EQ(s * s, 1) << n;
    const int64_t step = n > 200 ? 37 : 1;  // pairs of rows
    for (int64_t a = 0; a < n; a += step)
      for (int64_t b = 0; b < n; ++b) {
        int64_t dot = 0;
        for (int64_t j = 0; j < n; ++j) dot += h[static_cast<size_t>(a * n + j)] * h[static_cast<size_t>(b * n + j)];
        ASSERT_EQ(dot, a == b ? n : 0) << n << ": " << a << ' ' << b;
      }
  }
  for (const int64_t n : {0, 3, 6, 18, 30, 1 << 20}) EXPECT_FALSE(HadamardSigns(n).ok()) << n;
}

TEST(Hadamard, SignsAreDrawn) {
  const auto a = RandomHadamard(16, 1).Take(), b = RandomHadamard(16, 2).Take();
  EXPECT_NE(a, b);
  EXPECT_EQ(a, RandomHadamard(16, 1).Take());
  for (const float v : a) EXPECT_EQ(std::abs(v), 0.25f);
}

std::vector<float> Logits(const std::string& path, const std::vector<int32_t>& tokens) {
  std::shared_ptr<const model::Model> m = model::LoadModel(path).Take();
  auto g = graph::BuildDecoder(m, {.max_context = 64}).Take();
  EXPECT_TRUE(graph::RunPasses(g, {}).ok());
  backend::CpuOptions o;
  o.n_threads = 2;
  o.context = o.chunk = 64;
  o.compute = backend::ComputeMode::kF32;
  o.kv_type = kernels::KvType::kF32;
  o.isa = TestIsa();
  o.logits = backend::LogitsOf::kAllTokens;
  const auto b = backend::CreateCpuBackend(g, o).Take();
  const auto l = b->Forward(tokens, backend::LogitsOf::kAllTokens).Take();
  std::vector<float> all;
  for (int i = 0; i < l.n_rows; ++i) all.insert(all.end(), l.Row(i).begin(), l.Row(i).end());
  return all;
}

// GGUF files with tied and separate heads, biases, QK-norms, fused tensors.
TEST(Rotation, LogitsStay) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 24; ++i) tokens.push_back(3 + (7 * i + i * i) % 80);
  for (const char* name : {"llama", "llama3_rope", "qwen2", "qwen3", "phi3"}) {
    SCOPED_TRACE(name);
    const std::string from = std::string(SLM_SOURCE_DIR "/tests/tiny/models/") + name + ".gguf";
    const auto m = model::LoadModel(from).Take();
    std::string bytes;
    for (const int n_threads : {1, 2}) {
      const auto team = ThreadTeam::Create(n_threads).Take();
      std::string out;
      const Status s = WriteRotated(*m, 1, TestIsa(), *team, [&](std::span<const std::byte> b) -> Status {
        out.append(reinterpret_cast<const char*>(b.data()), b.size());
        return Ok();
      });
      ASSERT_TRUE(s.ok()) << s.error().message();
      if (!bytes.empty()) EXPECT_TRUE(out == bytes) << "another number of threads";
      bytes = out;
    }
    const std::string to = ::testing::TempDir() + "rotated-" + name + ".gguf";
    std::ofstream(to, std::ios::binary) << bytes;
    const auto turned = model::LoadModel(to).Take();
    EXPECT_FALSE(turned->config.tied_head);
    EXPECT_NE(model::DequantizeAll(*turned->Find(model::Role::kDown, 0)), model::DequantizeAll(*m->Find(model::Role::kDown, 0)));
    EXPECT_EQ(model::DequantizeAll(*turned->Find(model::Role::kAttnNorm, 0)),
              std::vector<float>(static_cast<size_t>(m->config.d_model), 1.0f));
    const std::vector<float> want = Logits(from, tokens), got = Logits(to, tokens);
    ASSERT_EQ(want.size(), got.size());
    double top = 0, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      top = std::max(top, std::abs(double{want[i]}));
      worst = std::max(worst, std::abs(double{want[i]} - got[i]));
    }
    EXPECT_LT(worst, 2e-5 * top);
    std::remove(to.c_str());
  }
}

TEST(Rotation, NormsBehindABranchAreRefused) {
  const auto m = model::LoadModel(SLM_SOURCE_DIR "/tests/tiny/models/gemma3.gguf");
  ASSERT_TRUE(m.ok());
  const auto team = ThreadTeam::Create(1).Take();
  const Status s = WriteRotated(*m.value(), 1, TestIsa(), *team, [](std::span<const std::byte>) { return Ok(); });
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace slm::quant
