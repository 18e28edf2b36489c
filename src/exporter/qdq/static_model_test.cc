// What BuildStaticModel asks of a prefix. Whole graphs are run by tests/e2e/qdq_test.py.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exporter/qdq/qdq.h"
#include "model/model.h"

namespace slm::exporter {
namespace {

std::string Refusal(const graph::Graph& g, const Calibrated& calibrated) {
  const auto r = BuildStaticModel(g, {.chunk = 8, .context = 32}, calibrated);
  return r.ok() ? "" : r.error().message();
}

TEST(StaticModel, APrefixHasKeysAndValuesOfEveryLayer) {
  const auto m = model::LoadModel(SLM_SOURCE_DIR "/tests/tiny/models/llama").Take();
  const graph::Graph g = graph::BuildDecoder(m, {.max_context = 32}).Take();
  const auto layers = static_cast<size_t>(m->config.n_layers);
  const size_t values = 2 * static_cast<size_t>(m->config.n_kv_heads * m->config.head_dim);
  Calibrated c;
  c.prefix_tokens = {5, 6};
  const std::vector<float> right(values), one_less(values - 1);
  const std::vector<std::vector<model::PrefixCache>> wrong = {
      {},
      std::vector<model::PrefixCache>(layers - 1, {right, right}),
      std::vector<model::PrefixCache>(layers, {one_less, right}),
      std::vector<model::PrefixCache>(layers, {right, one_less}),
      std::vector<model::PrefixCache>(layers, {right, {}}),
  };
  for (const auto& prefix : wrong) {
    c.prefix = prefix;
    EXPECT_NE(Refusal(g, c).find("the prefix of 2 tokens"), std::string::npos) << Refusal(g, c);
  }
  c.prefix.assign(layers, {right, right});
  EXPECT_EQ(Refusal(g, c).find("prefix"), std::string::npos) << Refusal(g, c);  // what is missing then are ranges
  c.prefix_tokens.clear();
  EXPECT_NE(Refusal(g, c).find("the prefix of 0 tokens"), std::string::npos) << "a cache without tokens";
}

}  // namespace
}  // namespace slm::exporter
