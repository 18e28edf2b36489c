// Builder and readers against transformers: logits of every tiny model, computed by the reference interpreter from the unfused
// graph. Expected values come from tests/tiny/make_models.py.
#include "graph/graph.h"

#include <gtest/gtest.h>

#include "graph/testing/interpreter.h"
#include "graph/testing/tiny_models.h"

namespace slm::graph {
namespace {

using testing::Array;
using testing::Interpreter;
using testing::RelativeError;
using testing::TinyCase;

class TinyLogits : public ::testing::TestWithParam<TinyCase> {};

TEST_P(TinyLogits, EqualTransformers) {
  const Graph g = testing::BuildOrDie(GetParam());
  const double error = RelativeError(Interpreter(g).Run(GetParam().prompt), GetParam().logits);
  EXPECT_LT(error, GetParam().tolerance);
  RecordProperty("relative_error", std::to_string(error));
}

// Feeding the prompt in pieces through the KV cache is the same sequence.
TEST_P(TinyLogits, ChunksEqualTheWhole) {
  const Graph g = testing::BuildOrDie(GetParam());
  Interpreter run(g);
  const std::vector<int>& p = GetParam().prompt;
  Array all;
  for (auto [begin, end] : {std::pair{0, 5}, {5, 6}, {6, 18}, {18, static_cast<int>(p.size())}}) {
    const Array part = run.Run({p.begin() + begin, p.begin() + end});
    all.insert(all.end(), part.begin(), part.end());
  }
  EXPECT_LT(RelativeError(all, GetParam().logits), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, TinyLogits, ::testing::ValuesIn(testing::TinyCases()), [](const auto& i) { return i.param.name; });

// Each feature matters: a model that is built without it gives other logits. Proves that the cases above can fail.
struct Feature {
  const char* name;
  const char* model;
  void (*break_it)(model::ModelConfig& c);
};

class FeatureMatters : public ::testing::TestWithParam<Feature> {};

TEST_P(FeatureMatters, WithoutItTheLogitsDiffer) {
  const TinyCase t = testing::TinyCaseNamed(GetParam().model);
  auto broken = std::make_shared<model::Model>();
  auto real = testing::LoadOrDie(t.path);
  // A copy of the record that shares the maps (kept alive by `real`).
  broken->path = real->path;
  broken->config = real->config;
  broken->tensors = real->tensors;
  broken->role_index = real->role_index;
  GetParam().break_it(broken->config);
  auto g = BuildDecoder(broken, {t.max_context});
  ASSERT_TRUE(g.ok()) << g.error().message();
  EXPECT_GT(RelativeError(Interpreter(g.value()).Run(t.prompt), t.logits), 10 * t.tolerance);
}

using Config = model::ModelConfig;
INSTANTIATE_TEST_SUITE_P(
    All, FeatureMatters,
    ::testing::Values(Feature{"rope_theta", "llama", [](Config& c) { c.rope.theta *= 1.5; }},
                      Feature{"rope_pairing", "llama", [](Config& c) { c.rope.interleaved = !c.rope.interleaved; }},
                      Feature{"rope_pairing_gguf", "llama_gguf", [](Config& c) { c.rope.interleaved = !c.rope.interleaved; }},
                      Feature{"llama3_scaling", "llama3_rope", [](Config& c) { c.rope.scaling = model::RopeScaling::kNone; }},
                      Feature{"llama3_scaling_gguf", "llama3_rope_gguf", [](Config& c) { c.rope.freq_factors.clear(); }},
                      Feature{"window", "mistral", [](Config& c) { c.sliding_window += 1; }},
                      Feature{"no_rope_layers", "smollm3", [](Config& c) { c.no_rope.clear(); }},
                      Feature{"attention_softcap", "gemma2", [](Config& c) { c.attention_softcap = 0; }},
                      Feature{"logit_softcap", "gemma2", [](Config& c) { c.logit_softcap = 0; }},
                      Feature{"norm_offset", "gemma3", [](Config& c) { c.norm_offset = 0; }},
                      Feature{"embedding_scale", "gemma3", [](Config& c) { c.embedding_scale *= 1.01f; }},
                      Feature{"embedding_scale_gguf", "gemma3_gguf", [](Config& c) { c.embedding_scale *= 1.01f; }},
                      Feature{"attention_scale", "gemma3", [](Config& c) { c.attention_scale = 0; }},
                      Feature{"local_rope", "gemma3", [](Config& c) { c.rope_local = c.rope; }},
                      Feature{"local_layers", "gemma3", [](Config& c) { c.is_local.assign(c.is_local.size(), 0); }},
                      Feature{"linear_scaling", "gemma3", [](Config& c) { c.rope.scaling = model::RopeScaling::kNone; }},
                      Feature{"activation", "gemma3", [](Config& c) { c.activation = model::Activation::kSilu; }},
                      Feature{"long_factors", "phi3_long", [](Config& c) { c.rope.long_factors = c.rope.short_factors; }},
                      Feature{"short_factors", "phi3_short", [](Config& c) { c.rope.short_factors = c.rope.long_factors; }},
                      Feature{"attention_factor", "phi3_short", [](Config& c) { c.rope.attention_factor = 1; }},
                      Feature{"residual_scale", "granite", [](Config& c) { c.residual_scale = 1; }},
                      Feature{"logit_scale", "granite", [](Config& c) { c.logit_scale = 1; }},
                      Feature{"embedding_multiplier", "granite", [](Config& c) { c.embedding_scale = 1; }},
                      Feature{"eps", "qwen3", [](Config& c) { c.rms_eps = 1e-2f; }}),
    [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace slm::graph
