// Layers run one at a time against transformers' logits of every tiny architecture, with norm and head computed here in double; what the
// matrices read against definitions; stand-ins; the same bits for any number of threads.
#include "backend/cpu/block_runner.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/cpu/tiny_for_test.h"

namespace slm::backend {
namespace {
using model::Role;

struct Case {
  std::string name, path;
  std::vector<int32_t> prompt;
  int max_context = 0;
  size_t rows = 0, vocab = 0;
  double tolerance = 0;
  std::vector<float> logits;  // [rows][vocab] of the last tokens
};

std::vector<Case> Cases() {
  std::ifstream in(TinyPath("expected.json"));
  const auto expected = nlohmann::json::parse(in);
  std::vector<Case> cases;
  for (const auto& j : expected["cases"]) {
    Case c{j["name"], TinyPath(j["path"]), j["prompt"], j["max_context"], j["rows"], j["vocab"], j["tolerance"], {}};
    c.logits.resize(c.rows * c.vocab);
    std::ifstream f(TinyPath(j["logits"]), std::ios::binary);
    f.read(reinterpret_cast<char*>(c.logits.data()), static_cast<std::streamsize>(c.logits.size() * 4));
    EXPECT_TRUE(f.good()) << c.name;
    cases.push_back(std::move(c));
  }
  EXPECT_GE(cases.size(), 18u);
  return cases;
}

struct Opened {
  std::shared_ptr<const model::Model> model;
  graph::Graph decoder;
  std::unique_ptr<ThreadTeam> team;
};
Opened Open(const Case& c, int n_threads) {
  Opened o;
  o.model = model::LoadModel(c.path).Take();
  o.decoder = graph::BuildDecoder(o.model, {.max_context = c.max_context}).Take();
  o.team = ThreadTeam::Create(n_threads).Take();
  return o;
}
std::unique_ptr<BlockRunner> Runner(const Opened& o, const Case& c, int layer, std::vector<Replacement> replaced = {},
                                    std::vector<InputGrid> grids = {}) {
  auto r = BlockRunner::Create(
      o.decoder,
      {.layer = layer, .max_tokens = c.max_context, .isa = TestIsa(), .replaced = std::move(replaced), .input_grids = std::move(grids)},
      *o.team);
  EXPECT_TRUE(r.ok()) << c.name << ": " << (r.ok() ? "" : r.error().message());
  return r.Take();
}

std::vector<float> Embedded(const Opened& o, const Case& c) {
  const auto table = model::DequantizeAll(*o.model->Find(Role::kEmbedding));
  const auto e = static_cast<size_t>(o.model->config.d_model);
  std::vector<float> x;
  for (const int32_t t : c.prompt)
    for (size_t j = 0; j < e; ++j) x.push_back(table[static_cast<size_t>(t) * e + j] * o.model->config.embedding_scale);
  return x;
}

std::vector<double> Normed(const model::ModelConfig& config, const float* x, const model::Tensor& w) {
  const auto values = model::DequantizeAll(w);
  double power = 0;
  for (size_t j = 0; j < values.size(); ++j) power += double{x[j]} * x[j];
  const double scale = 1 / std::sqrt(power / static_cast<double>(values.size()) + config.rms_eps);
  std::vector<double> y(values.size());
  for (size_t j = 0; j < y.size(); ++j) y[j] = x[j] * scale * (double{config.norm_offset} + values[j]);
  return y;
}

TEST(BlockRunner, LayersOneAtATimeGiveTransformersLogits) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Opened o = Open(c, 2);
    std::vector<float> x = Embedded(o, c);
    const int n = static_cast<int>(c.prompt.size());
    for (int layer = 0; layer < o.model->config.n_layers; ++layer) Runner(o, c, layer)->Run(x.data(), n, x.data());
    const auto& config = o.model->config;
    const auto e = static_cast<size_t>(config.d_model);
    const auto head = model::DequantizeAll(*o.model->Find(config.tied_head ? Role::kEmbedding : Role::kHead));
    double worst = 0, top = 0;
    for (size_t r = 0; r < c.rows; ++r) {
      const auto h = Normed(config, x.data() + (c.prompt.size() - c.rows + r) * e, *o.model->Find(Role::kFinalNorm));
      for (size_t v = 0; v < c.vocab; ++v) {
        double logit = 0;
        for (size_t j = 0; j < e; ++j) logit += h[j] * double{head[v * e + j]};
        logit *= config.logit_scale;
        if (config.logit_softcap != 0) logit = std::tanh(logit / config.logit_softcap) * config.logit_softcap;
        worst = std::max(worst, std::fabs(logit - double{c.logits[r * c.vocab + v]}));
        top = std::max(top, std::fabs(double{c.logits[r * c.vocab + v]}));
      }
    }
    EXPECT_LE(worst / top, c.tolerance);
  }
}

// The attention input is the norm of the layer's input; o and down, put in place by hand, give the layer's output from what they read.
TEST(BlockRunner, InputsAreWhatTheMatricesRead) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Opened o = Open(c, 2);
    const auto& config = o.model->config;
    const std::vector<float> x = Embedded(o, c);
    const int n = static_cast<int>(c.prompt.size());
    std::vector<float> out(x.size());
    const auto runner = Runner(o, c, 0);
    runner->Run(x.data(), n, out.data());
    const auto in = runner->inputs();
    ASSERT_EQ(in.size(), 4u);
    const bool fused_qkv = o.model->Find(Role::kQkv, 0) != nullptr, fused_mlp = o.model->Find(Role::kGateUp, 0) != nullptr;
    ASSERT_EQ(in[0].matrices.size(), fused_qkv ? 1u : 3u);
    EXPECT_EQ(in[0].matrices[0], o.model->Find(fused_qkv ? Role::kQkv : Role::kQ, 0));
    EXPECT_EQ(in[1].matrices, std::vector<const model::Tensor*>{o.model->Find(Role::kO, 0)});
    ASSERT_EQ(in[2].matrices.size(), fused_mlp ? 1u : 2u);
    EXPECT_EQ(in[3].matrices, std::vector<const model::Tensor*>{o.model->Find(Role::kDown, 0)});
    EXPECT_EQ(in[1].width, int64_t{config.n_heads} * config.head_dim);
    EXPECT_EQ(in[3].width, config.d_ff);
    for (int i = 0; i < n; ++i) {
      const auto want = Normed(config, x.data() + i * config.d_model, *o.model->Find(Role::kAttnNorm, 0));
      for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(in[0].rows[static_cast<size_t>(i) * want.size() + j], want[j], 1e-4) << i;
    }
    if (config.post_norms) continue;
    // x + o(attention) + down(gated) with biases, for the last token.
    const auto product = [&](Role weight, Role bias, const LayerInput& from) {
      const auto w = model::DequantizeAll(*o.model->Find(weight, 0));
      std::vector<double> y(static_cast<size_t>(config.d_model), 0.0);
      for (size_t r = 0; r < y.size(); ++r)
        for (int64_t j = 0; j < from.width; ++j)
          y[r] += double{w[r * static_cast<size_t>(from.width) + static_cast<size_t>(j)]} * from.rows[(n - 1) * from.width + j];
      if (const auto* b = o.model->Find(bias, 0)) {
        const auto values = model::DequantizeAll(*b);
        for (size_t r = 0; r < y.size(); ++r) y[r] += values[r];
      }
      return y;
    };
    const auto attention = product(Role::kO, Role::kOBias, in[1]), mlp = product(Role::kDown, Role::kDownBias, in[3]);
    for (size_t j = 0; j < attention.size(); ++j) {
      const size_t at = static_cast<size_t>(n - 1) * attention.size() + j;
      EXPECT_NEAR(out[at], double{x[at]} + (attention[j] + mlp[j]) * double{config.residual_scale}, 1e-4) << j;
    }
  }
}

// Gemms give the products of what they read, adds the sum of what came before; the last result is the layer's.
TEST(BlockRunner, OutputsAreWhatTheNodesCompute) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Opened o = Open(c, 2);
    const std::vector<float> x = Embedded(o, c);
    const int n = static_cast<int>(c.prompt.size());
    std::vector<float> out(x.size());
    const auto runner =
        BlockRunner::Create(
            o.decoder, {.layer = 0, .max_tokens = c.max_context, .isa = TestIsa(), .replaced = {}, .outputs = KeepOutputs::kYes}, *o.team)
            .Take();
    runner->Run(x.data(), n, out.data());
    std::map<std::string, const LayerOutput*> of;
    for (const LayerOutput& node : runner->outputs()) EXPECT_TRUE(of.emplace(node.name, &node).second) << node.name;
    int gemms = 0, adds = 0;
    for (const graph::Node& node : o.decoder.nodes) {
      if (node.layer != 0 || node.op == graph::Op::kReshape || graph::IsFixed(o.decoder, node.outputs[0])) continue;
      ASSERT_TRUE(of.contains(node.name)) << node.name;
      const LayerOutput& y = *of[node.name];
      const auto read = [&](size_t i) -> const float* {  // nullptr: the layer's input or a reshaped value
        const auto& name = o.decoder.values[node.inputs[i]].name;
        return of.contains(name) ? of[name]->rows + (n - 1) * of[name]->width : nullptr;
      };
      const float* last = y.rows + (n - 1) * y.width;
      if (node.op == graph::Op::kGemm && read(0)) {
        ++gemms;
        const auto w = graph::FixedValues(o.decoder, node.inputs[1]);
        const size_t k = w.size() / static_cast<size_t>(y.width);
        for (size_t r = 0; r < static_cast<size_t>(y.width); ++r) {
          double sum = node.inputs.size() > 2 ? graph::FixedValues(o.decoder, node.inputs[2])[r] : 0;
          for (size_t j = 0; j < k; ++j) sum += double{w[r * k + j]} * read(0)[j];
          EXPECT_NEAR(last[r], sum, 1e-4 * std::max(1.0, std::abs(sum))) << node.name;
        }
      }
      if (node.op == graph::Op::kAdd && read(0) && read(1)) {
        ++adds;
        for (int64_t j = 0; j < y.width; ++j) EXPECT_FLOAT_EQ(last[j], read(0)[j] + read(1)[j]) << node.name;
      }
    }
    EXPECT_GE(gemms, 6);
    EXPECT_GE(adds, 1);
    const LayerOutput& result = runner->outputs().back();
    EXPECT_EQ(std::vector<float>(result.rows, result.rows + n * result.width), out);
  }
}

TEST(BlockRunner, StandInsTakeTheTensorsPlace) {
  const Case c = Cases().front();
  const Opened o = Open(c, 2);
  const std::vector<float> x = Embedded(o, c);
  const int n = static_cast<int>(c.prompt.size());
  std::vector<float> plain(x.size()), same(x.size()), none(x.size());
  Runner(o, c, 1)->Run(x.data(), n, plain.data());
  std::vector<Replacement> own, zero;
  std::vector<std::vector<float>> values;
  values.reserve(8);
  for (const Role r : {Role::kQ, Role::kO, Role::kDown, Role::kAttnNorm})
    own.push_back({o.model->Find(r, 1), values.emplace_back(model::DequantizeAll(*o.model->Find(r, 1)))});
  for (const Role r : {Role::kO, Role::kDown})
    zero.push_back({o.model->Find(r, 1), values.emplace_back(static_cast<size_t>(o.model->Find(r, 1)->n_values()), 0.0f)});
  const auto with_own = Runner(o, c, 1, own);
  with_own->Run(x.data(), n, same.data());
  EXPECT_EQ(plain, same);
  EXPECT_EQ(with_own->inputs()[0].matrices[0], o.model->Find(Role::kQ, 1)) << "named as the model's tensor";
  Runner(o, c, 1, zero)->Run(x.data(), n, none.data());
  EXPECT_EQ(none, x) << "both branches are nothing";
}

TEST(BlockRunner, RoundsRows) {
  const std::vector<float> x = {1.27f, -0.634f, 0.006f, 0, -2.54f};
  std::vector<float> row = x;
  RoundInput({InputRounding::kStatic, 1.27f}, row);  // steps of 0.01
  const float steps[] = {127, -63, 1, 0, -127};
  for (size_t i = 0; i < row.size(); ++i) EXPECT_FLOAT_EQ(row[i], steps[i] * 0.01f) << i;
  row = x;
  RoundInput({InputRounding::kPerToken, 0}, row);  // steps of 0.02
  const float wide[] = {64, -32, 0, 0, -127};      // 63.5 is a tie, to the even one
  for (size_t i = 0; i < row.size(); ++i) EXPECT_FLOAT_EQ(row[i], wide[i] * 0.02f) << i;
  row = x;
  RoundInput({}, row);
  EXPECT_EQ(row, x);
  row.assign(3, 0.0f);
  RoundInput({InputRounding::kPerToken, 0}, row);
  EXPECT_EQ(row, std::vector<float>(3, 0.0f));
}

// The output moves by what down makes of the change of its input; inputs that are rounded to nothing give nothing.
TEST(BlockRunner, ProductsReadRoundedInputs) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const Opened o = Open(c, 2);
    const auto& config = o.model->config;
    if (config.post_norms) continue;
    const std::vector<float> x = Embedded(o, c);
    const int n = static_cast<int>(c.prompt.size());
    std::vector<float> plain(x.size()), rounded(x.size());
    Runner(o, c, 0)->Run(x.data(), n, plain.data());
    for (const InputRounding how : {InputRounding::kPerToken, InputRounding::kStatic}) {
      std::vector<InputGrid> grids(4);
      grids[3] = {how, 0.05f};
      const auto runner = Runner(o, c, 0, {}, grids);
      runner->Run(x.data(), n, rounded.data());
      const LayerInput& in = runner->inputs()[3];
      const auto w = model::DequantizeAll(*o.model->Find(Role::kDown, 0));
      const auto width = static_cast<size_t>(in.width), e = static_cast<size_t>(config.d_model);
      double moved = 0;
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        std::vector<float> row(in.rows + i * width, in.rows + (i + 1) * width), to = row;
        RoundInput(grids[3], to);
        for (size_t r = 0; r < e; ++r) {
          double change = 0;
          for (size_t j = 0; j < width; ++j) change += double{w[r * width + j]} * (double{to[j]} - row[j]);
          moved = std::max(moved, std::abs(change));
          EXPECT_NEAR(double{rounded[i * e + r]} - plain[i * e + r], change * double{config.residual_scale}, 1e-4);
        }
      }
      EXPECT_GT(moved, 1e-3) << "rounding changed nothing";
    }
    const auto nothing = Runner(o, c, 0, {}, std::vector<InputGrid>(4, {InputRounding::kStatic, 1e9f}));
    nothing->Run(x.data(), n, rounded.data());
    for (int64_t j = 0; j < n * nothing->inputs()[1].width && !config.qkv_bias && !o.model->Find(Role::kVBias, 0); ++j)
      ASSERT_EQ(nothing->inputs()[1].rows[j], 0) << "all values are 0";
  }
}

TEST(BlockRunner, ThreadsDoNotChangeABit) {
  for (const Case& c : Cases()) {
    std::vector<float> one, one_read;
    for (const int threads : {1, 2, 3}) {
      const Opened o = Open(c, threads);
      std::vector<float> x = Embedded(o, c), read;
      const auto runner = Runner(o, c, 0);
      const int n = static_cast<int>(c.prompt.size());
      runner->Run(x.data(), n, x.data());
      Runner(o, c, 1, {}, std::vector<InputGrid>(4, {InputRounding::kPerToken, 0}))->Run(x.data(), n, x.data());
      for (const LayerInput& in : runner->inputs()) read.insert(read.end(), in.rows, in.rows + n * in.width);
      if (threads == 1) {
        one = x;
        one_read = read;
      }
      EXPECT_EQ(x, one) << c.name;
      EXPECT_EQ(read, one_read) << c.name;
    }
  }
}

TEST(BlockRunner, OneTokenIsARowOfMany) {
  const Case c = Cases().front();
  const Opened o = Open(c, 2);
  const std::vector<float> x = Embedded(o, c);
  std::vector<float> all(x.size()), one(static_cast<size_t>(o.model->config.d_model));
  const auto runner = Runner(o, c, 0);
  runner->Run(x.data(), static_cast<int>(c.prompt.size()), all.data());
  runner->Run(x.data(), 1, one.data());
  for (size_t j = 0; j < one.size(); ++j) EXPECT_NEAR(one[j], all[j], 1e-5);
}

}  // namespace
}  // namespace slm::backend
