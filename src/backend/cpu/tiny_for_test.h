// The tiny models of tests/tiny/models on the CPU back end, as the tests of this folder open them. Test-only.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "base/tiers_for_test.h"

namespace slm::backend {

inline std::string TinyPath(const std::string& name) { return std::string(SLM_SOURCE_DIR) + "/tests/tiny/models/" + name; }

// A model on the back end; null, with the test failed, when something refuses.
inline std::unique_ptr<Backend> OpenTiny(const std::string& path, const std::vector<std::string>& passes_off, const CpuOptions& o) {
  auto model = model::LoadModel(path);
  EXPECT_TRUE(model.ok()) << path << ": " << (model.ok() ? "" : model.error().message());
  if (!model.ok()) return nullptr;
  auto g = graph::BuildDecoder(model.value(), {.max_context = o.context});
  EXPECT_TRUE(g.ok()) << path << ": " << (g.ok() ? "" : g.error().message());
  if (!g.ok()) return nullptr;
  EXPECT_TRUE(graph::RunPasses(g.value(), passes_off).ok());
  auto b = CreateCpuBackend(g.value(), o);
  EXPECT_TRUE(b.ok()) << path << ": " << (b.ok() ? "" : b.error().message());
  return b.ok() ? b.Take() : nullptr;
}

// All rows of logits of `tokens`, one after another, given `at_once` tokens a call (no more than the back end takes).
inline std::vector<float> AllRows(Backend& b, std::span<const int32_t> tokens, size_t at_once) {
  std::vector<float> all;
  while (!tokens.empty()) {
    const size_t n = std::min({tokens.size(), at_once, static_cast<size_t>(b.capabilities().max_tokens)});
    auto l = b.Forward(tokens.first(n), LogitsOf::kAllTokens);
    EXPECT_TRUE(l.ok()) << (l.ok() ? "" : l.error().message());
    if (!l.ok()) return {};
    for (int i = 0; i < l.value().n_rows; ++i) all.insert(all.end(), l.value().Row(i).begin(), l.value().Row(i).end());
    tokens = tokens.subspan(n);
  }
  return all;
}

}  // namespace slm::backend
