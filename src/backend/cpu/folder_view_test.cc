// Folders seen as GGUF files (model/gguf/folder/view.h): the logits of transformers for every architecture, through GGUF's own keys, names
// and order of rows.
#include "model/gguf/folder/view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cpu/tiny_for_test.h"
#include "base/mmap.h"

namespace slm::backend {
namespace {
namespace fs = std::filesystem;

// As many tokens as the model has rows.
struct AnyVocabulary {
  std::vector<std::string> spellings;
  model::TokenizerSource source;
  explicit AnyVocabulary(int n) {
    for (int i = 0; i < n; ++i) spellings.push_back("t" + std::to_string(i));
    source.kind = "gguf";
    source.ggml_model = "gpt2";
    source.ggml_pre = "gpt-2";
    source.tokens.assign(spellings.begin(), spellings.end());
    source.token_types.assign(spellings.size(), 1);
  }
};

Result<std::shared_ptr<model::Model>> ViewOf(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(auto folder, model::LoadModel(path));
  const AnyVocabulary v(folder->config.vocab_size);
  const fs::path file = fs::temp_directory_path() / ("slm_view_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
                                                     std::to_string(reinterpret_cast<uintptr_t>(folder.get())));
  std::ofstream out(file, std::ios::binary);
  const auto sink = [&](std::span<const std::byte> b) {
    out.write(reinterpret_cast<const char*>(b.data()), static_cast<std::streamsize>(b.size()));
    return Ok();
  };
  const Status written = model::gguf::WriteFolderPatch(*folder, v.source, sink);
  out.close();
  auto map = MappedFile::Open(file.string());
  fs::remove(file);
  SLM_RETURN_IF_ERROR(written);
  if (!map.ok()) return map.error();
  return model::gguf::ViewFolder(std::move(folder), map.Take());
}

std::vector<float> Logits(std::shared_ptr<model::Model> m, const nlohmann::json& j) {
  CpuOptions o;
  o.context = j["max_context"];
  o.kv_type = kernels::KvType::kF32;
  o.compute = ComputeMode::kF32;
  o.isa = TestIsa();
  o.logits = LogitsOf::kAllTokens;
  auto g = graph::BuildDecoder(std::move(m), {.max_context = o.context});
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().message());
  EXPECT_TRUE(graph::RunPasses(g.value(), {}).ok());
  auto b = CreateCpuBackend(g.value(), o);
  EXPECT_TRUE(b.ok());
  const auto all = AllRows(*b.value(), j["prompt"].get<std::vector<int32_t>>(), 512);
  return {all.end() - j["rows"].get<int64_t>() * j["vocab"].get<int64_t>(), all.end()};
}

void CheckFolders(const std::string& set, size_t least, const std::vector<std::string>& refused) {
  const std::string root = std::string(SLM_SOURCE_DIR) + "/tests/tiny/" + set + "/";
  std::ifstream in(root + "expected.json");
  const auto doc = nlohmann::json::parse(in);
  size_t checked = 0;
  for (const auto& j : doc["cases"]) {
    const std::string name = j["name"], path = j["path"];
    if (path.ends_with(".gguf")) continue;
    auto view = ViewOf(root + path);
    const bool refuses = std::find(refused.begin(), refused.end(), name) != refused.end();
    EXPECT_EQ(view.ok(), !refuses) << name << ": " << (view.ok() ? "" : view.error().message());
    if (!view.ok()) {
      EXPECT_EQ(view.error().code(), Code::kUnsupported) << name;
      continue;
    }
    EXPECT_EQ(view.value()->format, "gguf");
    std::vector<float> want(static_cast<size_t>(j["rows"].get<int>() * j["vocab"].get<int>()));
    std::ifstream f(root + std::string(j["logits"]), std::ios::binary);
    f.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * 4));
    const std::vector<float> got = Logits(view.value(), j);
    ASSERT_EQ(got.size(), want.size());
    double worst = 0, top = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::fabs(double{got[i]} - want[i]));
      top = std::max(top, std::fabs(double{want[i]}));
    }
    EXPECT_LE(worst, j["tolerance"].get<double>() * top) << name;
    ++checked;
  }
  EXPECT_GE(checked, least);
}

// SmolLM3's tiny model chooses its own layers without rotary embedding, which GGUF has no key for.
TEST(FolderView, EveryArchitectureGivesTransformersLogits) { CheckFolders("models", 12, {"smollm3"}); }

// Codes in groups that no block type of GGUF holds: f32 scales, groups of 16, eight bits with zero points.
TEST(FolderView, GroupsBecomeBlocksWithTheSameValues) { CheckFolders("grouped", 5, {"gptq_act", "gptq2", "gptq8", "ct4_zero"}); }

}  // namespace
}  // namespace slm::backend
