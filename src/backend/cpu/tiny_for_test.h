// The tiny models of tests/tiny/models on the CPU back end, as the tests of this folder open them. Test-only.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
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

// Prompt and logits [rows][vocab] of its last tokens, by transformers (tests/tiny/make_models.py).
struct Expected {
  std::vector<int32_t> prompt;
  size_t rows = 0, vocab = 0;
  double tolerance = 0;
  std::vector<float> logits;
};

inline Expected ExpectedOf(const std::string& name) {
  std::ifstream in(TinyPath("expected.json"));
  const auto document = nlohmann::json::parse(in);
  for (const auto& j : document["cases"]) {
    if (j["name"] != name) continue;
    Expected e{j["prompt"], j["rows"], j["vocab"], j["tolerance"], {}};
    e.logits.resize(e.rows * e.vocab);
    std::ifstream f(TinyPath(j["logits"]), std::ios::binary);
    f.read(reinterpret_cast<char*>(e.logits.data()), static_cast<std::streamsize>(e.logits.size() * 4));
    EXPECT_TRUE(f.good());
    return e;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

// max |got - want| over max |want|; infinite where lengths differ or a value is none.
inline double RelativeError(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  double worst = 0, top = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    worst = std::max(worst, std::fabs(double{got[i]} - want[i]));
    top = std::max(top, std::fabs(double{want[i]}));
  }
  return worst / top;
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
