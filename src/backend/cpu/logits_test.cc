// The CPU back end against transformers: logits of tiny random models of every architecture, in every setting that must not
// change them. Values: tests/tiny/make_models.py and make_grouped.py (transformers, f32), recorded in the expected.json beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cpu/tiny_for_test.h"

namespace slm::backend {
namespace {

const std::string kTiny = std::string(SLM_SOURCE_DIR) + "/tests/tiny/";

struct Case {
  std::string name, path;
  std::vector<int32_t> prompt;
  int max_context = 0, rows = 0, vocab = 0;
  double tolerance = 0;
  std::vector<float> logits;  // [rows][vocab] of the last `rows` tokens
};

void AddCases(const std::string& folder, std::vector<Case>* cases) {
  std::ifstream in(folder + "expected.json");
  const auto doc = nlohmann::json::parse(in);
  for (const auto& j : doc["cases"]) {
    Case c{j["name"], folder + std::string(j["path"]), j["prompt"], j["max_context"], j["rows"], j["vocab"], j["tolerance"], {}};
    c.logits.resize(static_cast<size_t>(c.rows * c.vocab));
    std::ifstream f(folder + std::string(j["logits"]), std::ios::binary);
    f.read(reinterpret_cast<char*>(c.logits.data()), static_cast<std::streamsize>(c.logits.size() * 4));
    EXPECT_TRUE(f.good()) << c.name;
    cases->push_back(std::move(c));
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  AddCases(kTiny + "models/", &cases);
  AddCases(kTiny + "grouped/", &cases);
  return cases;
}

struct Setting {
  std::vector<std::string> passes_off;
  int chunk = 512, n_threads = 2;
  bool step_by_step = false;  // all but the first token one at a time
  FloatWeights float_weights = FloatWeights::kPacked;
};

CpuOptions OptionsFor(const Case& c, const Setting& s) {
  CpuOptions o;
  o.n_threads = s.n_threads;
  o.context = c.max_context;
  o.chunk = s.chunk;
  o.kv_type = kernels::KvType::kF32;
  o.compute = ComputeMode::kF32;
  o.float_weights = s.float_weights;
  o.isa = TestIsa();
  o.logits = LogitsOf::kAllTokens;
  return o;
}

std::unique_ptr<Backend> Open(const Case& c, const Setting& s, const CpuOptions& o) { return OpenTiny(c.path, s.passes_off, o); }

// All rows of logits of the prompt.
std::vector<float> Evaluate(Backend& b, const Case& c, const Setting& s) {
  return AllRows(b, c.prompt, s.step_by_step ? 1 : c.prompt.size());
}

void CheckAll(const Setting& s) {
  const auto cases = Cases();
  ASSERT_GE(cases.size(), 25u);
  for (const Case& c : cases) {
    auto b = Open(c, s, OptionsFor(c, s));
    ASSERT_TRUE(b) << c.name;
    const auto got = Evaluate(*b, c, s);
    ASSERT_EQ(got.size(), c.prompt.size() * static_cast<size_t>(c.vocab)) << c.name;
    const size_t tail = static_cast<size_t>(c.rows * c.vocab);
    EXPECT_LE(RelativeError({got.data() + got.size() - tail, tail}, c.logits), c.tolerance) << c.name;
  }
}

TEST(TinyModels, LogitsEqualTransformers) { CheckAll({}); }
TEST(TinyModels, WithoutAnyPass) { CheckAll({.passes_off = {"all"}}); }
TEST(TinyModels, EachPassAlone) {
  for (const auto& off : graph::AllPasses()) {
    Setting s;
    for (const auto& p : graph::AllPasses())
      if (&p != &off) s.passes_off.push_back(p.name);
    SCOPED_TRACE(off.name);
    CheckAll(s);
  }
}
TEST(TinyModels, OneThread) { CheckAll({.n_threads = 1}); }
TEST(TinyModels, MoreThreadsThanPanels) { CheckAll({.n_threads = 5}); }
TEST(TinyModels, ChunksOfSeven) { CheckAll({.chunk = 7}); }
TEST(TinyModels, TokenByToken) { CheckAll({.step_by_step = true}); }
TEST(TinyModels, FloatWeightsInTheFile) {
  CheckAll({.float_weights = FloatWeights::kFile});
  CheckAll({.n_threads = 3, .step_by_step = true, .float_weights = FloatWeights::kFile});
}

TEST(TinyModels, RewindGivesTheSameAgain) {
  for (const Case& c : Cases()) {
    auto b = Open(c, {}, OptionsFor(c, {}));
    ASSERT_TRUE(b);
    const auto first = Evaluate(*b, c, {});
    ASSERT_TRUE(b->Rewind(5).ok());
    EXPECT_EQ(b->used(), 5);
    auto l = b->Forward(std::span(c.prompt).subspan(5), LogitsOf::kAllTokens);
    ASSERT_TRUE(l.ok());
    const size_t from = 5 * static_cast<size_t>(c.vocab);
    std::vector<float> again;
    for (int i = 0; i < l.value().n_rows; ++i) again.insert(again.end(), l.value().Row(i).begin(), l.value().Row(i).end());
    EXPECT_LE(RelativeError(again, {first.data() + from, first.size() - from}), 1e-5) << c.name;
  }
}

// The result of the quantized path must not depend on how work is split: same bits for any number of threads.
TEST(TinyModels, ThreadsDoNotChangeABit) {
  for (const Case& c : Cases()) {
    CpuOptions o = OptionsFor(c, {});
    o.compute = ComputeMode::kNative;
    o.kv_type = kernels::KvType::kF16;
    std::vector<float> one;
    for (int n : {1, 2, 3}) {
      o.n_threads = n;
      auto b = Open(c, {}, o);
      ASSERT_TRUE(b);
      const auto got = Evaluate(*b, c, {});
      if (n == 1) one = got;
      EXPECT_EQ(got, one) << c.name << " with " << n << " threads";
    }
  }
}

// Nor on where float weights are between two calls, which is what memory they take.
TEST(TinyModels, WeightsInTheFileChangeNoBit) {
  int smaller = 0;
  for (const Case& c : Cases())
    for (const ComputeMode compute : {ComputeMode::kNative, ComputeMode::kF32}) {
      CpuOptions o = OptionsFor(c, {});
      o.compute = compute;
      auto packed = Open(c, {}, o);
      o.float_weights = FloatWeights::kFile;
      auto in_file = Open(c, {}, o);
      ASSERT_TRUE(packed && in_file);
      EXPECT_EQ(Evaluate(*packed, c, {}), Evaluate(*in_file, c, {})) << c.name;
      EXPECT_LE(in_file->capabilities().weights_bytes, packed->capabilities().weights_bytes);
      smaller += in_file->capabilities().weights_bytes == 0 ? 1 : 0;  // every matrix is float
    }
  EXPECT_GE(smaller, 20);
}

// Nor on which passes rewrote the graph: fused kernels compute what the separate ones do.
TEST(TinyModels, PassesDoNotChangeABit) {
  for (const Case& c : Cases()) {
    CpuOptions o = OptionsFor(c, {});
    o.compute = ComputeMode::kNative;
    auto fused = Open(c, {}, o), separate = Open(c, {.passes_off = {"all"}}, o);
    ASSERT_TRUE(fused && separate);
    EXPECT_EQ(Evaluate(*fused, c, {}), Evaluate(*separate, c, {})) << c.name;
  }
}

TEST(CpuBackend, RefusesWhatDoesNotFit) {
  const Case c = Cases().front();
  auto b = Open(c, {}, OptionsFor(c, {}));
  ASSERT_TRUE(b);
  const std::vector<int32_t> many(static_cast<size_t>(c.max_context) + 1, 1);
  EXPECT_EQ(b->Forward(many, LogitsOf::kAllTokens).error().code(), Code::kInvalidArgument);  // more than a chunk
  EXPECT_EQ(b->Forward({}, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  const std::vector<int32_t> outside{c.vocab};
  EXPECT_EQ(b->Forward(outside, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  const std::vector<int32_t> negative{-1};
  EXPECT_EQ(b->Forward(negative, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(b->Forward(std::span(many).first(static_cast<size_t>(c.max_context)), LogitsOf::kLastToken).ok());
  const auto full = b->Forward(std::span(many).first(1), LogitsOf::kLastToken);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), Code::kLimit);
  EXPECT_NE(full.error().message().find(std::to_string(c.max_context)), std::string::npos) << full.error().message();
  EXPECT_FALSE(b->Rewind(c.max_context + 1).ok());
  EXPECT_FALSE(b->Rewind(-1).ok());
  EXPECT_EQ(b->used(), c.max_context);
}

TEST(CpuBackend, MemoryBudgetIsALimitToTheByte) {
  const Case c = Cases().front();
  CpuOptions o = OptionsFor(c, {});
  auto b = Open(c, {}, o);
  ASSERT_TRUE(b);
  const Capabilities& has = b->capabilities();
  const int64_t need = has.weights_bytes + has.kv_bytes + has.activations_bytes;
  auto model = model::LoadModel(c.path).Take();
  auto g = graph::BuildDecoder(model, {.max_context = c.max_context}).Take();
  ASSERT_TRUE(graph::RunPasses(g, {}).ok());
  o.memory_budget_bytes = need;
  EXPECT_TRUE(CreateCpuBackend(g, o).ok());
  o.memory_budget_bytes = need - 1;
  const auto refused = CreateCpuBackend(g, o);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kLimit);
}

// 40000 slots of 2 layers * 2 heads * 8 values, keys and values, f32: 9.77 MiB.
TEST(CpuBackend, MemoryBudgetMessageNamesEveryPart) {
  const Case c = Cases().front();
  ASSERT_EQ(c.name, "llama");
  CpuOptions o = OptionsFor(c, {});
  o.context = 40000;
  o.chunk = 1;
  o.memory_budget_bytes = 3 << 20;
  auto model = model::LoadModel(c.path).Take();
  auto g = graph::BuildDecoder(model, {.max_context = o.context}).Take();
  ASSERT_TRUE(graph::RunPasses(g, {}).ok());
  const auto b = CreateCpuBackend(g, o);
  ASSERT_FALSE(b.ok());
  const std::string& m = b.error().message();
  EXPECT_EQ(b.error().code(), Code::kLimit);
  EXPECT_TRUE(m.starts_with("needs ")) << m;
  EXPECT_NE(m.find(", KV cache 9.8 MiB, activations "), std::string::npos) << m;
  EXPECT_NE(m.find("the budget is 3 MiB"), std::string::npos) << m;
  EXPECT_NE(b.error().hint().find("context"), std::string::npos) << b.error().hint();
}

}  // namespace
}  // namespace slm::backend
