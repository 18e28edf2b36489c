// Sampling against transformers' processors and OpenAI's formula (testdata/make_sampler_cases.py), and what is promised on top:
// ties, determinism, the distribution of draws, refusals.
#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

namespace slm::decode {
namespace {

using nlohmann::json;

std::vector<float> RandomRow(int n, uint64_t seed, float scale = 4) {
  std::mt19937_64 g(seed);
  std::normal_distribution<float> d(0, scale);
  std::vector<float> row(n);
  for (float& x : row) x = d(g);
  return row;
}

SamplingOptions OptionsOf(const json& o) {
  SamplingOptions s;
  s.temperature = o.at("temperature");
  s.top_k = o.value("top_k", s.top_k);
  s.top_p = o.value("top_p", s.top_p);
  s.min_p = o.value("min_p", s.min_p);
  s.repetition_penalty = o.value("repetition_penalty", s.repetition_penalty);
  s.presence_penalty = o.value("presence_penalty", s.presence_penalty);
  s.frequency_penalty = o.value("frequency_penalty", s.frequency_penalty);
  s.penalty_window = -1;  // transformers counts every token
  for (const auto& b : o.value("logit_bias", json::array())) s.logit_bias.emplace_back(b[0], b[1]);
  return s;
}

std::map<int, double> Distribution(const Sampler& sampler) {
  std::map<int, double> p;
  double total = 0;
  for (const Candidate& c : sampler.candidates()) total += static_cast<double>(c.weight);
  for (const Candidate& c : sampler.candidates())
    if (c.weight > 0) p[c.id] = static_cast<double>(c.weight) / total;
  return p;
}

TEST(Sampler, KeepsWhatTransformersKeeps) {
  std::ifstream file(SLM_SOURCE_DIR "/src/decode/testdata/sampler_cases.json");
  ASSERT_TRUE(file.good());
  const json all = json::parse(file);
  const std::vector<int32_t> prompt = all["prompt"];
  ASSERT_GE(all["cases"].size(), 30u);
  for (const json& c : all["cases"]) {
    SCOPED_TRACE(c["options"].dump() + " row " + c["row"].dump());
    Sampler sampler(all["vocab"], 64);
    ASSERT_TRUE(sampler.Start(OptionsOf(c["options"]), prompt).ok());
    for (const int32_t t : all["answer"]) sampler.Accept(t);
    const std::vector<float> row = all["rows"][c["row"].get<int>()];
    const auto drawn = sampler.Sample(row);
    ASSERT_TRUE(drawn.ok()) << drawn.error().message();
    std::map<int, double> got = Distribution(sampler);
    std::map<int, double> expected;
    for (const auto& k : c["kept"]) expected[k[0]] = k[1];
    EXPECT_TRUE(expected.contains(drawn.value()));
    for (const auto& [id, p] : expected) {
      if (p < 1e-11) continue;  // below the resolution of 2^-40
      ASSERT_TRUE(got.contains(id)) << id << " " << p;
      EXPECT_NEAR(got[id], p, 2e-6 * p + 1e-11) << id;
    }
    for (const auto& [id, p] : got) EXPECT_TRUE(expected.contains(id)) << id << " " << p;
  }
}

TEST(Sampler, WeightsAreExponentials) {
  for (double z = 0; z > -27; z -= 0.0137) {
    const double w = static_cast<double>(WeightOf(z)) / static_cast<double>(uint64_t{1} << 40);
    EXPECT_NEAR(w, std::exp(z), 2e-9 * std::exp(z) + 0x1p-40) << z;
  }
  EXPECT_EQ(WeightOf(0), uint64_t{1} << 40);
  EXPECT_EQ(WeightOf(-29), 0u);
  EXPECT_EQ(WeightOf(-std::numeric_limits<double>::infinity()), 0u);
  EXPECT_EQ(WeightOf(std::nan("")), 0u);
}

TEST(Sampler, PeakIsTheFirstHighest) {
  for (const int n : {1, 2, 15, 16, 17, 1000, 1024, 1025, 5000}) {
    std::vector<float> row = RandomRow(n, n);
    const auto expected = std::max_element(row.begin(), row.end()) - row.begin();
    EXPECT_EQ(FindPeak(row).id, expected) << n;
    row.assign(n, -1);
    EXPECT_EQ(FindPeak(row).id, 0) << n;
    row[n - 1] = 7;
    row[n / 2] = 7;
    EXPECT_EQ(FindPeak(row).id, n / 2) << n;
    EXPECT_EQ(FindPeak(row).value, 7) << n;
    EXPECT_TRUE(FindPeak(row).finite);
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      for (const int at : {0, n / 3, n - 1}) {
        std::vector<float> poisoned = row;
        poisoned[at] = bad;
        EXPECT_FALSE(FindPeak(poisoned).finite) << n << " " << at;
      }
    }
  }
  EXPECT_EQ(FindPeak({}).id, -1);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler sampler(4, 8);
  ASSERT_TRUE(sampler.Start({}, {}).ok());
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 3, 3, 2}).value(), 1);
  EXPECT_TRUE(sampler.candidates().empty());
}

TEST(Sampler, TopKBreaksTiesByTheLowerId) {
  Sampler sampler(6, 8);
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 3;
  ASSERT_TRUE(sampler.Start(o, {}).ok());
  ASSERT_TRUE(sampler.Sample(std::vector<float>{1, 2, 1, 2, 1, 1}).ok());
  std::vector<int> ids;
  for (const auto& c : sampler.candidates()) ids.push_back(c.id);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (std::vector<int>{0, 1, 3}));
}

TEST(Sampler, NucleusOfAFlatRowIsExact) {
  Sampler sampler(1000, 8);
  SamplingOptions o;
  o.temperature = 1;
  o.top_p = 0.25f;
  ASSERT_TRUE(sampler.Start(o, {}).ok());
  ASSERT_TRUE(sampler.Sample(std::vector<float>(1000, 0.5f)).ok());
  EXPECT_EQ(sampler.candidates().size(), 250u);
  for (const auto& c : sampler.candidates()) EXPECT_LT(c.id, 250);
}

TEST(Sampler, NucleusOfZeroAndMinPOfOneKeepTheLikeliest) {
  const std::vector<float> row = RandomRow(500, 3);
  for (int which = 0; which < 2; ++which) {
    Sampler sampler(500, 8);
    SamplingOptions o;
    o.temperature = 1;
    (which == 0 ? o.top_p : o.min_p) = which == 0 ? 0.0f : 1.0f;
    ASSERT_TRUE(sampler.Start(o, {}).ok());
    EXPECT_EQ(sampler.Sample(row).value(), FindPeak(row).id);
    EXPECT_EQ(sampler.candidates().size(), 1u);
  }
}

// 28 t is lost against the maximum here, and (x - max) / t overflows: the likeliest token must still be what is drawn, and
// not what an earlier call left behind.
TEST(Sampler, TinyTemperaturesAreGreedy) {
  for (const float t : {1e-5f, 1e-20f, std::numeric_limits<float>::min(), std::numeric_limits<float>::denorm_min()})
    for (const int top_k : {0, 5})
      for (const float top_p : {1.0f, 0.5f})
        for (const float min_p : {0.0f, 0.1f}) {
          SamplingOptions o;
          o.temperature = t;
          o.top_k = top_k;
          o.top_p = top_p;
          o.min_p = min_p;
          Sampler sampler(500, 8);
          ASSERT_TRUE(sampler.Start(o, {}).ok());
          for (int seed = 0; seed < 5; ++seed) {
            const std::vector<float> row = RandomRow(500, seed);
            EXPECT_EQ(sampler.Sample(row).value(), FindPeak(row).id) << t << " " << top_k << " " << top_p << " " << min_p;
            EXPECT_FALSE(sampler.candidates().empty());
          }
        }
}

TEST(Sampler, SameSeedSameTokens) {
  SamplingOptions o;
  o.temperature = 1.5f;
  o.top_p = 0.95f;
  o.seed = 42;
  const auto draw = [&](uint64_t seed) {
    Sampler sampler(4096, 8);
    o.seed = seed;
    EXPECT_TRUE(sampler.Start(o, {}).ok());
    std::vector<int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sampler.Sample(RandomRow(4096, i)).value());
    return ids;
  };
  EXPECT_EQ(draw(42), draw(42));
  EXPECT_NE(draw(42), draw(43));
}

// Pearson's chi-square of 200000 draws. The generator is seeded, so the outcome is fixed; the bound is the 99.9 % point of the
// chi-square distribution with 19 degrees of freedom (tables: 43.82).
TEST(Sampler, DrawsFollowTheDistribution) {
  constexpr int kN = 200000, kV = 20;
  const std::vector<float> row = RandomRow(kV, 9, 1);
  Sampler sampler(kV, 8);
  SamplingOptions o;
  o.temperature = 1;
  o.seed = 7;
  ASSERT_TRUE(sampler.Start(o, {}).ok());
  std::vector<int> counts(kV);
  for (int i = 0; i < kN; ++i) ++counts[sampler.Sample(row).value()];
  double total = 0, chi2 = 0;
  for (const float x : row) total += std::exp(static_cast<double>(x));
  for (int i = 0; i < kV; ++i) {
    const double expected = kN * std::exp(static_cast<double>(row[i])) / total;
    ASSERT_GT(expected, 5);
    chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi2, 43.82);
}

TEST(Sampler, RepetitionWindowForgets) {
  SamplingOptions o;
  o.repetition_penalty = 2;
  o.penalty_window = 2;
  Sampler sampler(3, 16);
  const std::vector<float> row = {4, 3, 1};
  const int32_t prompt[] = {2, 0};
  ASSERT_TRUE(sampler.Start(o, prompt).ok());
  EXPECT_EQ(sampler.Sample(row).value(), 1);  // 4 / 2 < 3
  sampler.Accept(1);
  EXPECT_EQ(sampler.Sample(row).value(), 0);  // 2 against 1.5
  sampler.Accept(1);
  sampler.Accept(1);  // 0 has left the window
  EXPECT_EQ(sampler.Sample(row).value(), 0);
  o.penalty_window = 0;
  ASSERT_TRUE(sampler.Start(o, prompt).ok());
  EXPECT_EQ(sampler.Sample(row).value(), 0);
}

TEST(Sampler, OpenAiPenaltiesCountTheAnswerOnly) {
  SamplingOptions o;
  o.presence_penalty = 1.5f;
  Sampler sampler(2, 16);
  const std::vector<float> row = {2, 1};
  const int32_t prompt[] = {0, 0, 0};
  ASSERT_TRUE(sampler.Start(o, prompt).ok());
  EXPECT_EQ(sampler.Sample(row).value(), 0);
  sampler.Accept(0);
  EXPECT_EQ(sampler.Sample(row).value(), 1);
}

TEST(Sampler, BiasBansAndForces) {
  SamplingOptions o;
  o.logit_bias = {{0, -std::numeric_limits<float>::infinity()}, {2, 100.0f}};
  Sampler sampler(4, 16);
  ASSERT_TRUE(sampler.Start(o, {}).ok());
  EXPECT_EQ(sampler.Sample(std::vector<float>{50, 1, 2, 3}).value(), 2);
  o.logit_bias.clear();
  for (int i = 0; i < 4; ++i) o.logit_bias.emplace_back(i, -std::numeric_limits<float>::infinity());
  ASSERT_TRUE(sampler.Start(o, {}).ok());
  EXPECT_EQ(sampler.Sample(std::vector<float>{50, 1, 2, 3}).error().code(), Code::kInvalidArgument);
}

TEST(Sampler, RefusesBadLogits) {
  for (const float t : {0.0f, 1.0f}) {
    Sampler sampler(3, 16);
    SamplingOptions o;
    o.temperature = t;
    ASSERT_TRUE(sampler.Start(o, {}).ok());
    EXPECT_EQ(sampler.Sample(std::vector<float>{1, std::nanf(""), 2}).error().code(), Code::kCorrupt);
    EXPECT_EQ(sampler.Sample(std::vector<float>{1, std::numeric_limits<float>::infinity(), 2}).error().code(), Code::kCorrupt);
    EXPECT_EQ(sampler.Sample(std::vector<float>{1, 2}).error().code(), Code::kInvalidArgument);
    EXPECT_TRUE(sampler.Sample(std::vector<float>{1, 3, 2}).ok());
  }
}

TEST(Sampler, RefusesBadOptionsByName) {
  const auto message = [](auto set) {
    SamplingOptions o;
    set(o);
    Sampler sampler(10, 16);
    const Status s = sampler.Start(o, {});
    if (s.ok()) return std::string("accepted");
    EXPECT_EQ(s.error().code(), Code::kInvalidArgument);
    return s.error().message();
  };
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(message([&](auto& o) { o.temperature = -0.1f; }).starts_with("temperature"));
  EXPECT_TRUE(message([&](auto& o) { o.temperature = nan; }).starts_with("temperature"));
  EXPECT_TRUE(message([&](auto& o) { o.temperature = inf; }).starts_with("temperature"));
  EXPECT_TRUE(message([&](auto& o) { o.top_k = -1; }).starts_with("top_k"));
  EXPECT_TRUE(message([&](auto& o) { o.top_p = 1.01f; }).starts_with("top_p"));
  EXPECT_TRUE(message([&](auto& o) { o.top_p = nan; }).starts_with("top_p"));
  EXPECT_TRUE(message([&](auto& o) { o.min_p = -1; }).starts_with("min_p"));
  EXPECT_TRUE(message([&](auto& o) { o.repetition_penalty = 0; }).starts_with("repetition_penalty"));
  EXPECT_TRUE(message([&](auto& o) { o.presence_penalty = nan; }).starts_with("presence_penalty"));
  EXPECT_TRUE(message([&](auto& o) { o.frequency_penalty = inf; }).starts_with("frequency_penalty"));
  EXPECT_TRUE(message([&](auto& o) { o.penalty_window = -2; }).starts_with("penalty_window"));
  EXPECT_TRUE(message([&](auto& o) { o.logit_bias = {{10, 1.0f}}; }).starts_with("logit_bias names token 10"));
  EXPECT_TRUE(message([&](auto& o) { o.logit_bias = {{1, nan}}; }).starts_with("logit_bias"));
  EXPECT_EQ(message([](auto&) {}), "accepted");
}

}  // namespace
}  // namespace slm::decode
