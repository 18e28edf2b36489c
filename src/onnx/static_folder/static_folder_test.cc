// The manifest of a folder of static graphs: what is read of it, and that any damage is an error. Folders: apps/cli/open_static_test.cc.
#include "onnx/static_folder/static_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace slm::onnx {
namespace {

std::string Sound() {
  std::ifstream in(SLM_SOURCE_DIR "/tests/corpus/static_manifest_fuzz/tw.json");
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(StaticManifest, IsRead) {
  const auto r = ParseStaticManifest(Sound());
  ASSERT_TRUE(r.ok()) << r.error().message();
  const StaticManifest& m = r.value();
  EXPECT_EQ(m.context, 64);
  EXPECT_EQ(m.n_layers, 2);
  ASSERT_EQ(m.graphs.size(), 2u);
  EXPECT_EQ(m.graphs[0].tokens, 32);
  EXPECT_EQ(m.graphs[1].tokens, 1);
  EXPECT_EQ(m.input_type, StaticElement::kU16);
  EXPECT_EQ(m.cache_type, StaticElement::kI16);
  EXPECT_EQ(m.prefix_tokens, std::vector<int32_t>{262});
  EXPECT_EQ(m.key_scales.size(), 2u);
  EXPECT_EQ(m.sha256.size(), 4u);
}

TEST(StaticManifest, CutAnywhereIsAnError) {
  std::string text = Sound();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (size_t n = 0; n < text.size(); ++n) ASSERT_FALSE(ParseStaticManifest(std::string_view(text).substr(0, n)).ok()) << n;
}

// Every key that must be there, absent and of another type.
TEST(StaticManifest, MissingKeysAreErrors) {
  const auto sound = nlohmann::json::parse(Sound());
  for (const char* key :
       {"format", "context", "graphs", "files", "host_file", "inputs", "input_dtype", "logits", "cache", "model", "prefix", "recipe"}) {
    auto j = sound;
    j.erase(key);
    EXPECT_FALSE(ParseStaticManifest(j.dump()).ok()) << key;
    j[key] = true;
    EXPECT_FALSE(ParseStaticManifest(j.dump()).ok()) << key;
  }
}

}  // namespace
}  // namespace slm::onnx
