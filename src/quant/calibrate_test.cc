// Statistics and AWQ against numpy (tests/tiny/make_calibration.py), folds against the layer they must not change, and the calibrated
// file: the same bytes for any number of threads, and a smaller error than without text.
#include "quant/calibrate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "backend/cpu/block_runner.h"
#include "base/tiers_for_test.h"
#include "quant/awq.h"
#include "quant/layer_weights.h"
#include "quant/statistics.h"

namespace slm::quant {
namespace {
using model::Role;

const std::string kTiny = SLM_SOURCE_DIR "/tests/tiny/";

struct Opened {
  std::shared_ptr<const model::Model> model;
  graph::Graph decoder;
  std::unique_ptr<ThreadTeam> team;
  Machine machine() const { return {team.get(), TestIsa()}; }
};
Opened Open(const std::string& name, int n_threads = 2) {
  Opened o;
  o.model = model::LoadModel(kTiny + "models/" + name).Take();
  o.decoder = graph::BuildDecoder(o.model, {.max_context = 64}).Take();
  o.team = ThreadTeam::Create(n_threads).Take();
  return o;
}

std::vector<float> Embedded(const model::Model& m, const std::vector<int32_t>& tokens) {
  const auto table = model::DequantizeAll(*m.Find(Role::kEmbedding));
  const auto e = static_cast<size_t>(m.config.d_model);
  std::vector<float> x;
  for (const int32_t t : tokens)
    for (size_t j = 0; j < e; ++j) x.push_back(table[static_cast<size_t>(t) * e + j] * m.config.embedding_scale);
  return x;
}

nlohmann::json Expected() {
  std::ifstream in(kTiny + "calibration.json");
  return nlohmann::json::parse(in);
}

// By layer and input, over the sequences of calibration.json.
std::vector<std::vector<InputStatistics>> Gather(const Opened& o, double most_energy) {
  const auto sequences = Expected()["sequences"].get<std::vector<std::vector<int32_t>>>();
  std::vector<std::vector<float>> hidden;
  for (const auto& s : sequences) hidden.push_back(Embedded(*o.model, s));
  std::vector<std::vector<InputStatistics>> all;
  for (int layer = 0; layer < o.model->config.n_layers; ++layer) {
    const auto runner =
        backend::BlockRunner::Create(o.decoder, {.layer = layer, .max_tokens = 64, .isa = TestIsa(), .replaced = {}}, *o.team).Take();
    auto& statistics = all.emplace_back();
    for (const auto& in : runner->inputs()) statistics.emplace_back(o.machine(), in.width, most_energy);
    for (size_t s = 0; s < hidden.size(); ++s) {
      runner->Run(hidden[s].data(), static_cast<int>(sequences[s].size()), hidden[s].data());
      for (size_t i = 0; i < statistics.size(); ++i) statistics[i].Add(runner->inputs()[i].rows, static_cast<int64_t>(sequences[s].size()));
    }
    for (InputStatistics& s : statistics) s.Finish();
  }
  return all;
}

void ExpectNear(std::span<const float> got, const nlohmann::json& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double top = 0;
  for (const auto& w : want) top = std::max(top, std::fabs(w.get<double>()));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(double{got[i]}, want[i].get<double>(), 2e-5 * top) << what << " " << i;
}

TEST(Statistics, AsNumpyHasThem) {
  const auto expected = Expected();
  const Opened o = Open("llama");
  for (const char* kind : {"plain", "capped"}) {
    int64_t capped = 0;
    const auto got = Gather(o, kind == std::string("plain") ? 0 : expected["most_energy"].get<double>());
    for (const auto& row : expected["inputs"]) {
      const InputStatistics& s = got[row["layer"].get<size_t>()][row["input"].get<size_t>()];
      const auto& want = row[kind];
      ExpectNear(s.mean_absolute(), want["mean_absolute"], "mean |x|");
      ExpectNear(s.mean_square(), want["mean_square"], "mean x^2");
      ExpectNear(s.second().Values(0), want["first_row"], "first row");
      ExpectNear(s.second().Values(s.width() - 1), want["last_row"], "last row");
      for (int64_t i = 0; i < s.width(); ++i)
        for (int64_t j = 0; j < i; ++j) ASSERT_EQ(s.second().Row(i)[j], s.second().Row(j)[i]);
      capped += s.capped();
    }
    EXPECT_EQ(capped > 0, kind == std::string("capped"));
  }
}

TEST(Statistics, ThreadsDoNotChangeABit) {
  const auto one = Gather(Open("llama", 1), 1.5), three = Gather(Open("llama", 3), 1.5);
  for (size_t layer = 0; layer < one.size(); ++layer)
    for (size_t i = 0; i < one[layer].size(); ++i) {
      EXPECT_EQ(one[layer][i].mean_absolute(), three[layer][i].mean_absolute());
      for (int64_t r = 0; r < one[layer][i].width(); ++r)
        EXPECT_TRUE(std::ranges::equal(one[layer][i].second().Values(r), three[layer][i].second().Values(r)));
    }
}

TEST(Awq, ErrorsAndChoiceAsNumpyHasThem) {
  const auto expected = Expected();
  const Opened o = Open("llama.gguf");
  const auto statistics = Gather(o, 0);
  const auto weights = LayerWeights::Read(*o.model, 0).Take();
  for (const auto& want : expected["folds"]) {
    const auto place = want["input"] == 0 ? FoldPlace::kAttentionInput : FoldPlace::kMlpInput;
    std::vector<FoldMember> members;
    for (const LayerTensor* t : weights.Members(place)) members.push_back({t->values, t->rows, StoredForm::Of(DType::kQ4_0)});
    const Fold fold = SearchFold(o.machine(), members, statistics[0][want["input"].get<size_t>()],
                                 {.points = 20, .max_rows = 1 << 20, .search = Search::kNearest, .tied = {}});
    const auto errors = want["errors"].get<std::vector<double>>();
    const auto best = std::min_element(errors.begin(), errors.end());
    // gguf rounds by the scale before it becomes f16, this code by the stored one: a few codes differ.
    EXPECT_NEAR(fold.identity_error, want["identity"].get<double>(), 0.01 * fold.identity_error);
    EXPECT_NEAR(fold.error, *best, 0.01 * *best);
    EXPECT_EQ(fold.exponent, static_cast<double>(best - errors.begin()) / 20);
    EXPECT_LT(fold.error, fold.identity_error);
  }
}

TEST(Awq, NothingToGainIsNoFold) {
  const Opened o = Open("llama.gguf");
  const auto statistics = Gather(o, 0);
  const auto weights = LayerWeights::Read(*o.model, 0).Take();
  std::vector<FoldMember> members;  // F16 holds the tiny models' weights exactly: no error to lower
  for (const LayerTensor* t : weights.Members(FoldPlace::kAttentionInput))
    members.push_back({t->values, t->rows, StoredForm::Of(DType::kF16)});
  const Fold fold = SearchFold(o.machine(), members, statistics[0][0], {.tied = {}});
  EXPECT_EQ(fold.identity_error, 0);
  EXPECT_TRUE(fold.scale.empty());
}

// Layer 1 of a model, before and after random factors went to a place.
class FoldTrial {
 public:
  explicit FoldTrial(const std::string& name) : o_(Open(name)) {
    std::vector<int32_t> tokens(20);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(3 + i * 4);
    x_ = Embedded(*o_.model, tokens);
    want_ = Run({});
    for (const float v : want_) top_ = std::max(top_, std::abs(v));
  }

  LayerWeights Folded(FoldPlace place, VectorTypes vectors) {
    LayerWeights w = LayerWeights::Read(*o_.model, 1, vectors).Take();
    EXPECT_FALSE(w.Members(place).empty());
    std::vector<float> scale(static_cast<size_t>(w.Members(place)[0]->width));
    for (float& s : scale) s = std::uniform_real_distribution<float>(0.5f, 2.0f)(rng_);
    const auto tied = w.Tied(place);
    for (size_t i = 0; i < tied.size(); ++i)
      scale[i] = scale[static_cast<size_t>(std::find(tied.begin(), tied.end(), tied[i]) - tied.begin())];
    w.Apply(place, scale);
    return w;
  }
  // The layer's output is what it was, within `most` of the largest value.
  void ExpectSame(const LayerWeights& w, float most) {
    std::vector<backend::Replacement> replaced;
    for (const LayerTensor& t : w.tensors())
      if (t.is_changed) replaced.push_back({t.tensor, t.values});
    EXPECT_GE(replaced.size(), 2u);
    const std::vector<float> got = Run(replaced);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want_[i], most * top_) << i;
  }

 private:
  std::vector<float> Run(const std::vector<backend::Replacement>& replaced) {
    std::vector<float> out(x_.size());
    backend::BlockRunner::Create(o_.decoder, {.layer = 1, .max_tokens = 64, .isa = TestIsa(), .replaced = replaced}, *o_.team)
        .Take()
        ->Run(x_.data(), 20, out.data());
    return out;
  }

  const Opened o_;
  std::mt19937 rng_{5};
  std::vector<float> x_, want_;
  float top_ = 0;
};

// Whatever the factors are, the layer computes what it did: norms with and without an offset, biases, fused rows, shared value heads.
TEST(LayerWeights, FoldsLeaveTheLayerAsItIs) {
  for (const char* name : {"llama", "llama.gguf", "llama_bias", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3.gguf", "phi3",
                           "phi3.gguf", "granite", "smollm3", "mistral"}) {
    FoldTrial trial(name);
    for (int p = 0; p < static_cast<int>(FoldPlace::kCount); ++p) {
      SCOPED_TRACE(fmt::format("{} {}", name, p));
      trial.ExpectSame(trial.Folded(static_cast<FoldPlace>(p), VectorTypes::kF32), 2e-5f);
    }
  }
}

// Norms and biases of two bytes: a norm's columns get the factor that it holds, so only a bias that is divided is rounded.
TEST(LayerWeights, FoldsIntoVectorsOfTwoBytes) {
  for (const char* name : {"llama", "llama_bias", "qwen2", "gemma", "gemma3", "phi3"}) {
    FoldTrial trial(name);
    for (int p = 0; p < static_cast<int>(FoldPlace::kCount); ++p) {
      SCOPED_TRACE(fmt::format("{} {}", name, p));
      const LayerWeights w = trial.Folded(static_cast<FoldPlace>(p), VectorTypes::kOwn);
      bool has_bias = false;
      for (const LayerTensor& t : w.tensors()) {
        if (!t.is_changed || t.is_matrix()) continue;
        ASSERT_EQ(t.tensor->dtype, DType::kBF16);
        for (const float v : t.values) ASSERT_EQ(std::bit_cast<uint32_t>(v) & 0xffffu, 0u) << t.tensor->name;
        has_bias = has_bias || t.tensor->name.ends_with("bias");
      }
      trial.ExpectSame(w, has_bias ? 0x1p-8f : 2e-5f);
    }
  }
}

struct Written {
  Report report;
  std::string bytes;
};
Written Write(const model::Model& m, const Recipe& recipe, int n_threads) {
  CalibrationText text;
  text.sequences = Expected()["sequences"].get<std::vector<std::vector<int32_t>>>();
  for (auto& sequence : text.sequences)
    for (int32_t& token : sequence) token %= static_cast<int32_t>(m.config.vocab_size);
  text.source = "test";
  const Plan plan = PlanTensors(m, recipe, SourceTypes::kFloatOnly).Take();
  Written w;
  const auto sink = [&](std::span<const std::byte> b) -> Status {
    w.bytes.append(reinterpret_cast<const char*>(b.data()), b.size());
    return Ok();
  };
  auto report = WriteGguf(m, plan, {.n_threads = n_threads, .progress = {}, .layer_done = {}, .text = &text, .isa = TestIsa()}, sink);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message());
  w.report = report.Take();
  return w;
}
Recipe Calibrated() {
  Recipe r;
  for (const Recipe& one : Recipes())
    if (one.name == "default") r = one;
  r.body = DType::kQ4_0;
  return r;
}

TEST(Calibration, TheSameBytesForAnyNumberOfThreads) {
  const Opened o = Open("llama.gguf");
  const Written one = Write(*o.model, Calibrated(), 1);
  EXPECT_FALSE(one.bytes.empty());
  for (const int n : {2, 3}) EXPECT_TRUE(Write(*o.model, Calibrated(), n).bytes == one.bytes) << n;
}

TEST(Calibration, LayersAreNeverWorseThanWithoutTheSteps) {
  for (const char* name : {"llama.gguf", "qwen2.gguf", "qwen3.gguf", "gemma3.gguf", "phi3.gguf", "llama3_rope.gguf"}) {
    const Opened o = Open(name);
    const Written w = Write(*o.model, Calibrated(), 2);
    ASSERT_EQ(w.report.layers.size(), static_cast<size_t>(o.model->config.n_layers)) << name;
    double plain = 0, error = 0;
    for (const LayerReport& l : w.report.layers) {
      EXPECT_LE(l.error, l.plain_error) << name;
      EXPECT_GT(l.error, 0) << name;
      plain += l.plain_error;
      error += l.error;
    }
    EXPECT_LT(error, plain) << name << ": no step helped in any layer";
  }
}

TEST(Calibration, WithoutTextIsRefused) {
  const Opened o = Open("llama.gguf");
  const Plan plan = PlanTensors(*o.model, Calibrated(), SourceTypes::kFloatOnly).Take();
  const auto r =
      WriteGguf(*o.model, plan, {.n_threads = 1, .progress = {}, .layer_done = {}}, [](std::span<const std::byte>) { return Ok(); });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace slm::quant
