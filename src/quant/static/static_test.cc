// Spans of logits against transformers' (tests/tiny), the prefix's part in them by arithmetic, and codes of every matrix.
#include "quant/static/static.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/tiers_for_test.h"

namespace slm::quant {
namespace {

const std::string kTiny = SLM_SOURCE_DIR "/tests/tiny/models/";

struct Opened {
  std::shared_ptr<const model::Model> model;
  graph::Graph decoder;
  std::unique_ptr<ThreadTeam> team;
  StaticWork work() const { return {.machine = {team.get(), TestIsa()}, .cancelled = {}, .layer_done = {}}; }
};
Opened Open(const std::string& path, int context = 64) {
  Opened o;
  o.model = model::LoadModel(kTiny + path).Take();
  o.decoder = graph::BuildDecoder(o.model, {.max_context = context}).Take();
  o.team = ThreadTeam::Create(2).Take();
  return o;
}

// All but the last `rows` tokens are the prefix, so that the span is that of the logits that transformers gave.
TEST(ObserveActivations, LogitsSpanWhatTransformersGave) {
  std::ifstream in(kTiny + "expected.json");
  const auto expected = nlohmann::json::parse(in);
  int checked = 0;
  for (const auto& j : expected["cases"]) {
    SCOPED_TRACE(j["name"].get<std::string>());
    const Opened o = Open(j["path"], j["max_context"]);
    const auto prompt = j["prompt"].get<std::vector<int32_t>>();
    const auto rows = j["rows"].get<size_t>(), vocab = j["vocab"].get<size_t>();
    if (o.model->config.logit_softcap != 0 || o.model->config.logit_scale != 1) continue;  // what transformers gave is after them
    std::vector<float> logits(rows * vocab);
    std::ifstream f(kTiny + j["logits"].get<std::string>(), std::ios::binary);
    f.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(logits.size() * 4));
    const CalibrationText text{.sequences = {prompt}, .source = "", .sha256 = "", .seed = 0};
    const int prefix = static_cast<int>(prompt.size() - rows);
    const ActivationSpans spans = ObserveActivations(o.decoder, text, prefix, o.work()).Take();
    const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
    const float tolerance = 1e-4f * std::max(*high, -*low);
    EXPECT_NEAR(spans.values.at("head").low, *low, tolerance);
    EXPECT_NEAR(spans.values.at("head").high, *high, tolerance);
    ASSERT_EQ(spans.prefix.size(), static_cast<size_t>(o.model->config.n_layers));
    EXPECT_EQ(spans.prefix[0].keys.size(), static_cast<size_t>(prefix * o.model->config.n_kv_heads * o.model->config.head_dim));
    ++checked;
  }
  EXPECT_GE(checked, 16);
}

// Every score of a layer by its definition, from the keys that are kept and the queries at position 0, which rotation leaves alone.
TEST(ObserveActivations, ScoresAreScaledProducts) {
  const Opened o = Open("llama");
  const CalibrationText one{.sequences = {{20}}, .source = "", .sha256 = "", .seed = 0};
  const ActivationSpans spans = ObserveActivations(o.decoder, one, 0, o.work()).Take();
  const ActivationSpans kept =
      ObserveActivations(o.decoder, {.sequences = {{20, 48}}, .source = "", .sha256 = "", .seed = 0}, 1, o.work()).Take();
  const auto& c = o.model->config;
  // The query projection of the normed embedding, in double.
  const auto table = model::DequantizeAll(*o.model->Find(model::Role::kEmbedding));
  const auto norm = model::DequantizeAll(*o.model->Find(model::Role::kAttnNorm, 0)),
             w = model::DequantizeAll(*o.model->Find(model::Role::kQ, 0));
  const auto e = static_cast<size_t>(c.d_model), d = static_cast<size_t>(c.head_dim);
  double power = 0;
  for (size_t j = 0; j < e; ++j) power += double{table[20 * e + j]} * table[20 * e + j];
  double low = 1e30, high = -1e30;
  for (size_t h = 0; h < static_cast<size_t>(c.n_heads); ++h) {
    double score = 0;
    for (size_t i = 0; i < d; ++i) {
      double q = 0;
      for (size_t j = 0; j < e; ++j)
        q += double{w[(h * d + i) * e + j]} * table[20 * e + j] * norm[j] / std::sqrt(power / static_cast<double>(e) + double{c.rms_eps});
      score += q * kept.prefix[0].keys[h / static_cast<size_t>(c.n_heads / c.n_kv_heads) * d + i];
    }
    score /= std::sqrt(static_cast<double>(d));
    low = std::min(low, score), high = std::max(high, score);
  }
  EXPECT_NEAR(spans.values.at("layers.0.attn.scores").low, low, 1e-5);
  EXPECT_NEAR(spans.values.at("layers.0.attn.scores").high, high, 1e-5);
}

TEST(ObserveActivations, Refusals) {
  const Opened o = Open("llama");
  const auto observe = [&](std::vector<std::vector<int32_t>> sequences, int prefix) {
    return ObserveActivations(o.decoder, {.sequences = std::move(sequences), .source = "", .sha256 = "", .seed = 0}, prefix, o.work());
  };
  EXPECT_FALSE(observe({}, 0).ok());
  EXPECT_FALSE(observe({{1}}, 1).ok());
  EXPECT_FALSE(observe({{1, 2, 3}, {2, 2, 3}}, 1).ok());
  EXPECT_TRUE(observe({{1, 2, 3}, {1, 3}}, 1).ok());
}

TEST(QuantizeMatrices, EveryMatrixByItsScheme) {
  const Opened o = Open("llama");
  StaticRecipe recipe{.body = ParseScheme("lpbq-g32").value(),
                      .down = ParseScheme("w8-sym-channel").value(),
                      .head = ParseScheme("w8-sym-channel").value(),
                      .how = Recipes()[0]};
  CalibrationText text{.sequences = {}, .source = "", .sha256 = "", .seed = 0};
  for (int32_t s = 0; s < 8; ++s) {
    auto& tokens = text.sequences.emplace_back();
    for (int32_t t = 0; t < 40; ++t) tokens.push_back((s * 41 + t * t) % 200);
  }
  for (const bool gptq : {false, true}) {
    recipe.how.gptq = recipe.how.weighted = gptq;
    const StaticMatrices made = QuantizeMatrices(*o.model, recipe, &text, o.work()).Take();
    ASSERT_EQ(made.matrices.size(), static_cast<size_t>(7 * o.model->config.n_layers + 1));
    for (const auto& [tensor, m] : made.matrices) {
      SCOPED_TRACE(tensor->name);
      const bool four = m.group > 0;
      EXPECT_EQ(four, tensor->name.find("down_proj") == std::string::npos && tensor->name.find("lm_head") == std::string::npos);
      EXPECT_EQ(m.bits, four ? 4 : 8);
      const std::vector<float> want = model::DequantizeAll(*tensor);
      double lost = 0, power = 0;
      for (int64_t i = 0; i < m.rows; ++i) {
        const int64_t groups = four ? m.width / m.group : 1;
        const float* scales = m.scales.data() + i * groups;
        const float unit = *std::max_element(scales, scales + groups) / 16;
        for (int64_t j = 0; j < m.width; ++j) {
          const float scale = scales[four ? j / m.group : 0];
          if (four) {
            EXPECT_EQ(scale, unit * std::nearbyint(scale / unit));
          }
          const auto at = static_cast<size_t>(i * m.width + j);
          const double d = want[at] - static_cast<double>(scale) * (m.codes[at] - (1 << (m.bits - 1)));
          lost += d * d, power += double{want[at]} * want[at];
        }
      }
      EXPECT_LT(std::sqrt(lost / power), four ? 0.2 : 0.012);
    }
    EXPECT_EQ(made.layers.size(), gptq ? static_cast<size_t>(o.model->config.n_layers) : 0u);
  }
}

}  // namespace
}  // namespace slm::quant
