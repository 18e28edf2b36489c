// Budgets of a plan against all combinations of types; the measurement on tiny models: which matrices it finds fragile, and that it is
// the same for any number of threads; the KLD of a change against softmaxes of the whole vocabulary.
#include "quant/allocation/allocation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/tiers_for_test.h"
#include "quant/allocation/logit_change.h"

namespace slm::quant {
namespace {
using model::Role;

const std::string kTiny = SLM_SOURCE_DIR "/tests/tiny/";

// A plan of some matrices of several widths, a head, an embedding and a norm, and made-up sensitivities: of the layers' matrices, and of
// the first `n_vocabulary` of head and embedding.
struct Case {
  std::vector<model::Tensor> tensors;
  Sensitivities sensitivities;
  Plan plan;
};
Case MakeCase(unsigned seed, size_t n_vocabulary = 0) {
  std::mt19937 rng(seed);
  const auto uniform = [&] { return static_cast<double>(rng()) / 4294967296.0; };
  Case c;
  c.sensitivities.types = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};
  const int64_t widths[] = {256, 576, 256, 768, 96, 256, 256};
  c.tensors.resize(8);
  for (size_t i = 0; i < 5; ++i) c.tensors[i].dims = {static_cast<int64_t>(8 + rng() % 40), widths[i]};
  c.tensors[5].dims = {100, 256};
  c.tensors[6].dims = {90, 256};
  c.tensors[7].dims = {256};
  for (size_t i = 0; i < 8; ++i) {
    const bool body = i < 5, vocabulary = i == 5 || i == 6;
    c.plan.choices.push_back({&c.tensors[i],
                              body         ? DType::kQ4_1
                              : vocabulary ? DType::kQ8_0
                                           : DType::kF32,
                              body, body ? 0 : -1, vocabulary});
    if (i >= 5 + n_vocabulary) continue;
    MatrixSensitivity one{.tensor = &c.tensors[i], .layer = body ? 0 : -1, .kld = std::pow(10, -2 * uniform()), .errors = {}};
    for (const DType t : c.sensitivities.types) {
      const double bits = 8.0 * Info(t).block_bytes / Info(t).block;
      one.errors.push_back(widths[i] % Info(t).block != 0 ? -1 : std::pow(4, -bits) * (0.5 + uniform()));
    }
    c.sensitivities.matrices.push_back(one);
  }
  return c;
}

// Calls f(expected KLD) with every combination of types in `c.plan`.
void EachCombination(Case* c, size_t i, double loss, const std::function<void(double)>& f) {
  if (i == c->sensitivities.matrices.size()) return f(loss);
  const MatrixSensitivity& one = c->sensitivities.matrices[i];
  for (size_t t = 0; t < one.errors.size(); ++t) {
    if (one.errors[t] < 0) continue;
    c->plan.choices[i].dtype = c->sensitivities.types[t];
    EachCombination(c, i + 1, loss + one.Loss(t), f);
  }
}

TEST(AllocateTypes, BitsAgainstAllCombinations) {
  double found_sum = 0, best_sum = 0;
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const TypeBudget budget : {TypeBudget{.body_bpw = 4.8}, TypeBudget{.body_bpw = 5.5}, TypeBudget{.body_bpw = 7},
                                    TypeBudget{.bpw = 7.5}, TypeBudget{.body_bpw = 6, .bpw = 7.2}}) {
      Case c = MakeCase(seed);
      double best = INFINITY;
      EachCombination(&c, 0, 0, [&](double loss) {
        if (budget.body_bpw > 0 && c.plan.body_bpw() > budget.body_bpw) return;
        if (budget.bpw > 0 && c.plan.bpw() > budget.bpw) return;
        best = std::min(best, loss);
      });
      const auto found = AllocateTypes(c.sensitivities, budget, &c.plan);
      ASSERT_EQ(found.ok(), std::isfinite(best)) << seed;
      if (!found.ok()) continue;
      EXPECT_LE(c.plan.body_bpw(), budget.body_bpw > 0 ? budget.body_bpw : 32);
      EXPECT_LE(c.plan.bpw(), budget.bpw > 0 ? budget.bpw : 32);
      EXPECT_DOUBLE_EQ(found.value().body_bpw, c.plan.body_bpw());
      EXPECT_EQ(found.value().bytes, c.plan.data_bytes());
      double loss = 0;  // of the types that are in the plan now
      for (size_t i = 0; i < 5; ++i)
        for (size_t t = 0; t < c.sensitivities.types.size(); ++t)
          if (c.sensitivities.types[t] == c.plan.choices[i].dtype) loss += c.sensitivities.matrices[i].Loss(t);
      EXPECT_NEAR(found.value().kld, loss, 1e-15);
      EXPECT_GE(loss, best - 1e-15);
      EXPECT_EQ(c.plan.choices[5].dtype, DType::kQ8_0);
      EXPECT_EQ(c.plan.choices[6].dtype, DType::kQ8_0);
      EXPECT_EQ(c.plan.choices[7].dtype, DType::kF32);
      found_sum += loss;
      best_sum += best;
    }
  EXPECT_GT(best_sum, 0);
  EXPECT_LE(found_sum, 1.1 * best_sum);
}

TEST(AllocateTypes, KldAgainstAllCombinations) {
  double found_sum = 0, best_sum = 0;
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const double kld : {3e-3, 1e-3, 1e-4}) {
      Case c = MakeCase(seed);
      double best = INFINITY;
      EachCombination(&c, 0, 0, [&](double loss) {
        if (loss <= kld) best = std::min(best, static_cast<double>(c.plan.data_bytes()));
      });
      const auto found = AllocateTypes(c.sensitivities, {.kld = kld}, &c.plan);
      ASSERT_EQ(found.ok(), std::isfinite(best)) << seed;
      if (!found.ok()) continue;
      EXPECT_LE(found.value().kld, kld);
      EXPECT_GE(static_cast<double>(found.value().bytes), best);
      found_sum += static_cast<double>(found.value().bytes);
      best_sum += best;
    }
  EXPECT_GT(best_sum, 0);
  EXPECT_LE(found_sum, 1.02 * best_sum);
}

// With head, or head and embedding, among what is chosen.
TEST(AllocateTypes, HeadAndEmbeddingAgainstAllCombinations) {
  for (const size_t n : {size_t{1}, size_t{2}}) {
    double found_sum = 0, best_sum = 0, found_bytes = 0, best_bytes = 0;
    int met = 0;
    for (unsigned seed = 0; seed < 6; ++seed)
      for (const TypeBudget budget : {TypeBudget{.bpw = 5.2}, TypeBudget{.bpw = 6.4}, TypeBudget{.body_bpw = 4.9, .bpw = 6.4},
                                      TypeBudget{.kld = 2e-3}, TypeBudget{.kld = 2e-4}}) {
        Case c = MakeCase(seed, n);
        double best = INFINITY;
        EachCombination(&c, 0, 0, [&](double loss) {
          if (budget.body_bpw > 0 && c.plan.body_bpw() > budget.body_bpw) return;
          if (budget.bpw > 0 && c.plan.bpw() > budget.bpw) return;
          if (budget.kld > 0 && loss > budget.kld) return;
          best = std::min(best, budget.kld > 0 ? static_cast<double>(c.plan.data_bytes()) : loss);
        });
        const auto found = AllocateTypes(c.sensitivities, budget, &c.plan);
        ASSERT_EQ(found.ok(), std::isfinite(best)) << seed;
        if (!found.ok()) continue;
        ++met;
        EXPECT_LE(c.plan.body_bpw(), budget.body_bpw > 0 ? budget.body_bpw : 32);
        EXPECT_LE(c.plan.bpw(), budget.bpw > 0 ? budget.bpw : 32);
        EXPECT_DOUBLE_EQ(found.value().body_bpw, c.plan.body_bpw());
        EXPECT_EQ(found.value().bytes, c.plan.data_bytes());
        double loss = 0;
        for (size_t i = 0; i < 5 + n; ++i)
          for (size_t t = 0; t < c.sensitivities.types.size(); ++t)
            if (c.sensitivities.types[t] == c.plan.choices[i].dtype) loss += c.sensitivities.matrices[i].Loss(t);
        EXPECT_NEAR(found.value().kld, loss, 1e-15);
        if (budget.kld > 0) {
          EXPECT_LE(loss, budget.kld);
          EXPECT_GE(static_cast<double>(found.value().bytes), best);
          found_bytes += static_cast<double>(found.value().bytes);
          best_bytes += best;
        } else {
          EXPECT_GE(loss, best - 1e-15);
          found_sum += loss;
          best_sum += best;
        }
      }
    EXPECT_GT(met, 20);
    EXPECT_LE(found_sum, 1.05 * best_sum);
    EXPECT_LE(found_bytes, 1.02 * best_bytes);
  }
}

TEST(AllocateTypes, WhatCannotBeMetNamesBothNumbers) {
  Case c = MakeCase(1);
  const auto bits = AllocateTypes(c.sensitivities, {.body_bpw = 4.4}, &c.plan);
  ASSERT_FALSE(bits.ok());
  EXPECT_EQ(bits.error().code(), Code::kLimit);
  EXPECT_NE(bits.error().message().find("the budget is"), std::string::npos);
  EXPECT_FALSE(AllocateTypes(c.sensitivities, {.kld = 1e-12}, &c.plan).ok());
  Case both = MakeCase(1, 2);
  EXPECT_EQ(AllocateTypes(both.sensitivities, {.bpw = 3}, &both.plan).error().code(), Code::kLimit);
  EXPECT_EQ(AllocateTypes(both.sensitivities, {.kld = 1e-12}, &both.plan).error().code(), Code::kLimit);
  const std::vector<ExpectedPoint> curve = ExpectedCurve(c.sensitivities, c.plan);
  ASSERT_GE(curve.size(), 5u);
  for (size_t i = 1; i < curve.size(); ++i) {
    EXPECT_GT(curve[i].bytes, curve[i - 1].bytes);
    EXPECT_LE(curve[i].kld, curve[i - 1].kld);
  }
}

struct Opened {
  std::shared_ptr<model::Model> model;
  CalibrationText text;
  std::vector<std::vector<float>> changed;  // values that stand in for tensors
};
Opened Open(const std::string& name) {
  Opened o;
  o.model = model::LoadModel(kTiny + "models/" + name).Take();
  std::ifstream in(kTiny + "calibration.json");
  o.text.sequences = nlohmann::json::parse(in)["sequences"].get<std::vector<std::vector<int32_t>>>();
  for (auto& sequence : o.text.sequences)
    for (int32_t& token : sequence) token %= static_cast<int32_t>(o.model->config.vocab_size);
  return o;
}
void Scale(Opened* o, Role role, int layer, float factor) {
  for (model::Tensor& t : o->model->tensors) {
    if (&t != o->model->Find(role, layer)) continue;
    std::vector<float>& values = o->changed.emplace_back(model::DequantizeAll(t));
    for (float& v : values) v *= factor;
    t.dtype = DType::kF32;
    t.data = std::as_bytes(std::span<const float>(values));
  }
}
Sensitivities Measure(const Opened& o, int n_threads = 2, bool with_vocabulary = false) {
  Recipe recipe = Recipes()[1];
  recipe.measures_vocabulary = with_vocabulary;
  recipe.types = {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0, DType::kQ6_K};
  const Plan plan = PlanTensors(*o.model, recipe, SourceTypes::kFloatOnly).Take();
  return MeasureSensitivities(*o.model, plan, {.n_threads = n_threads, .text = &o.text, .isa = TestIsa()}).Take();
}
const MatrixSensitivity& Of(const Opened& o, const Sensitivities& s, Role role, int layer) {
  return *std::find_if(s.matrices.begin(), s.matrices.end(), [&](const auto& m) { return m.tensor == o.model->Find(role, layer); });
}

TEST(Sensitivity, EveryMatrixWithFewerErrorsForMoreBits) {
  for (const char* name : {"llama.gguf", "qwen3.gguf", "gemma3.gguf", "phi3.gguf"}) {
    SCOPED_TRACE(name);
    const Opened o = Open(name);
    const Sensitivities s = Measure(o);
    ASSERT_FALSE(s.matrices.empty());
    for (const MatrixSensitivity& one : s.matrices) {
      SCOPED_TRACE(one.tensor->name);
      EXPECT_GT(one.kld, 0);
      EXPECT_GT(one.errors[0], one.errors[1]);
      EXPECT_GT(one.errors[1], 4 * one.errors[2]);
      EXPECT_GT(one.errors[2], 0);
      EXPECT_EQ(one.errors[3], -1) << "no width here holds a super-block";
    }
    EXPECT_GT(s.together, 0.2);
    EXPECT_LT(s.together, 5);
  }
}

// Embedding and head: one matrix when tied. More bits err less; what the matrices of the layers cost stays.
TEST(Sensitivity, EmbeddingAndHead) {
  for (const char* name : {"llama.gguf", "qwen2.gguf", "qwen3.gguf", "llama3_rope.gguf", "phi3.gguf"}) {
    SCOPED_TRACE(name);
    const Opened o = Open(name);
    const size_t n = o.model->config.tied_head ? 1 : 2;
    const Sensitivities without = Measure(o), s = Measure(o, 2, true);
    ASSERT_EQ(s.matrices.size(), without.matrices.size() + n);
    for (size_t i = 0; i < s.matrices.size(); ++i) {
      const MatrixSensitivity& one = s.matrices[i];
      SCOPED_TRACE(one.tensor->name);
      EXPECT_EQ(one.layer < 0, i < n);
      if (i >= n) {
        EXPECT_EQ(one.kld, without.matrices[i - n].kld);
        EXPECT_EQ(one.errors, without.matrices[i - n].errors);
        continue;
      }
      EXPECT_GT(one.kld, 0);
      EXPECT_GT(one.errors[0], one.errors[1]);
      EXPECT_GT(one.errors[1], 4 * one.errors[2]);
      EXPECT_GT(one.errors[2], 0);
      EXPECT_EQ(one.errors[3], -1);
    }
    EXPECT_EQ(s.matrices[0].tensor, o.model->Find(Role::kEmbedding));
    if (n == 2) EXPECT_EQ(s.matrices[1].tensor, o.model->Find(Role::kHead));
    EXPECT_GT(s.together, 0.2);
    EXPECT_LT(s.together, 5);
  }
}

TEST(Sensitivity, ThreadsDoNotChangeABit) {
  const Opened o = Open("llama.gguf");
  const Sensitivities one = Measure(o, 1, true), three = Measure(o, 3, true);
  ASSERT_EQ(one.matrices.size(), three.matrices.size());
  for (size_t i = 0; i < one.matrices.size(); ++i) {
    EXPECT_EQ(one.matrices[i].kld, three.matrices[i].kld);
    EXPECT_EQ(one.matrices[i].errors, three.matrices[i].errors);
  }
  EXPECT_EQ(one.together, three.together);
}

// A layer whose attention hardly reaches the output is cheap, and makes the others no cheaper; one that shouts is dear.
TEST(Sensitivity, FollowsWhatTheOutputHangsOn) {
  Opened quiet = Open("llama.gguf"), plain = Open("llama.gguf"), loud = Open("llama.gguf");
  Scale(&quiet, Role::kO, 1, 0.05f);
  Scale(&loud, Role::kO, 1, 20);
  const Sensitivities q = Measure(quiet), p = Measure(plain), l = Measure(loud);
  for (const Role role : {Role::kV, Role::kO}) {
    EXPECT_LT(Of(quiet, q, role, 1).kld, 0.1 * Of(plain, p, role, 1).kld);
    EXPECT_GT(Of(loud, l, role, 1).kld, 2 * Of(plain, p, role, 1).kld);
  }
}

// The same KLD from softmaxes over the whole vocabulary: sum of p (log p - log q).
TEST(LogitChange, AsTheSoftmaxesHaveIt) {
  for (const char* name : {"llama.gguf", "llama", "gemma", "gemma2", "gemma3.gguf", "granite"}) {
    SCOPED_TRACE(name);
    const Opened o = Open(name);
    const model::ModelConfig& c = o.model->config;
    const auto e = static_cast<size_t>(c.d_model), v = static_cast<size_t>(c.vocab_size);
    const auto norm = model::DequantizeAll(*o.model->Find(Role::kFinalNorm));
    const auto head = model::DequantizeAll(*o.model->Find(c.tied_head ? Role::kEmbedding : Role::kHead));
    auto coarse = head;  // and a change of its rows
    const auto change_row = [](std::span<float> row) {
      for (float& w : row) w = std::round(w * 16) / 16;
    };
    for (size_t i = 0; i < v; ++i) change_row(std::span(coarse).subspan(i * e, e));
    const auto log_p = [&](const std::vector<float>& head, const float* x) {
      double square = 0;
      for (size_t j = 0; j < e; ++j) square += double{x[j]} * double{x[j]};
      const double by = 1 / std::sqrt(square / static_cast<double>(e) + double{c.rms_eps});
      std::vector<double> z(v, 0.0);
      double sum = 0;
      for (size_t i = 0; i < v; ++i) {
        for (size_t j = 0; j < e; ++j) z[i] += double{head[i * e + j]} * double{x[j]} * by * (double{norm[j]} + double{c.norm_offset});
        z[i] *= double{c.logit_scale};
        if (c.logit_softcap != 0) z[i] = double{c.logit_softcap} * std::tanh(z[i] / double{c.logit_softcap});
        sum += std::exp(z[i]);
      }
      for (double& one : z) one -= std::log(sum);
      return z;
    };
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    constexpr size_t kTokens = 5;
    std::vector<float> rows(kTokens * e);
    for (float& x : rows) x = normal(rng);
    std::vector<std::vector<float>> changed;
    changed.reserve(6);
    std::vector<LogitChange> changes;
    std::vector<double> want;
    for (const float size : {0.003f, 0.1f, 1.0f, 0.0f})
      for (const HeadState state : {HeadState::kFloat, HeadState::kChanged}) {
        if (size == 0 && state == HeadState::kFloat) continue;
        auto& other = changed.emplace_back(rows);
        for (float& x : other) x += size * normal(rng);
        changes.push_back({size == 0 ? std::span<const float>() : other, state});
        double kld = 0;
        for (size_t i = 0; i < kTokens; ++i) {
          const auto p = log_p(head, rows.data() + i * e);
          const auto q = log_p(state == HeadState::kFloat ? head : coarse, other.data() + i * e);
          for (size_t w = 0; w < v; ++w) kld += std::exp(p[w]) * (p[w] - q[w]) / kTokens;
        }
        want.push_back(kld);
      }
    const auto team = ThreadTeam::Create(2).Take();
    const auto got = MeanDivergences(*o.model, {team.get(), TestIsa()}, rows, changes, change_row).Take();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-3 * want[i] + 1e-9) << i;
  }
}

}  // namespace
}  // namespace slm::quant
