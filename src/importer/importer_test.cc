// Decoders in ONNX as other software writes them (tests/tiny/make_onnx_decoders.py), through the graph's interpreter, against the logits of
// ONNX Runtime; and what changes in such a file must be refused.
#include "importer/importer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "graph/testing/interpreter.h"
#include "importer/decoder.h"
#include "importer/weights.h"
#include "onnx/onnx.h"

namespace slm::importer {
namespace {

namespace fs = std::filesystem;
const std::string kRoot = std::string(SLM_SOURCE_DIR) + "/tests/tiny/onnx_decoders/";

struct Case {
  std::string name;
  std::vector<int> prompt;
  size_t rows = 0, vocab = 0;
  double tolerance = 0;
  std::vector<float> logits;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> Cases() {
  std::ifstream in(kRoot + "expected.json");
  std::vector<Case> out;
  const nlohmann::json doc = nlohmann::json::parse(in);
  for (const nlohmann::json& j : doc.at("cases")) {
    Case c{j.at("name"), j.at("prompt"), j.at("rows"), j.at("vocab"), j.at("tolerance"), {}};
    c.logits.resize(c.rows * c.vocab);
    std::ifstream f(kRoot + j.at("logits").get<std::string>(), std::ios::binary);
    f.read(reinterpret_cast<char*>(c.logits.data()), static_cast<std::streamsize>(c.logits.size() * 4));
    out.push_back(std::move(c));
  }
  return out;
}

double Error(const graph::testing::Array& got, const Case& c) {
  double worst = 0, top = 0;
  const size_t skip = got.size() - c.logits.size();
  for (size_t i = 0; i < c.logits.size(); ++i) {
    const double e = std::abs(got[skip + i] - c.logits[i]);
    worst = std::isnan(e) ? INFINITY : std::max(worst, e);
    top = std::max(top, std::abs(double{c.logits[i]}));
  }
  return worst / top;
}

class OnnxDecoder : public testing::TestWithParam<Case> {};

TEST_P(OnnxDecoder, HasTheLogitsOfOnnxRuntime) {
  const Case& c = GetParam();
  auto m = Import(kRoot + c.name);
  ASSERT_TRUE(m.ok()) << m.error().message() << "; " << m.error().hint();
  const model::ModelConfig& config = m.value().model->config;
  EXPECT_EQ(config.n_layers, 2);
  EXPECT_EQ(config.d_model, 32);
  EXPECT_EQ(config.d_ff, 48);
  EXPECT_EQ(static_cast<size_t>(config.vocab_size), c.vocab);
  EXPECT_EQ(config.max_context, c.name == "branching" ? 40 : 64);  // where its If chooses other tables
  auto g = BuildGraph(m.value(), 40);
  ASSERT_TRUE(g.ok()) << g.error().message();
  EXPECT_LE(Error(graph::testing::Interpreter(g.value()).Run(c.prompt), c), c.tolerance);
  ASSERT_TRUE(graph::RunPasses(g.value(), {}).ok());
  EXPECT_LE(Error(graph::testing::Interpreter(g.value()).Run(c.prompt), c), c.tolerance) << "with all passes";
}

INSTANTIATE_TEST_SUITE_P(All, OnnxDecoder, testing::ValuesIn(Cases()), [](const auto& c) { return c.param.name; });

// The passes find what they look for: one product for q, k and v, one for gate and up, the rotation inside the attention.
TEST(OnnxDecoderGraph, IsTheOneThatTheBuilderMakes) {
  for (const char* name : {"builder_int4", "builder_f32", "plain_f32", "plain_codes"}) {
    const auto m = Import(kRoot + name).Take();
    graph::Graph g = BuildGraph(m, 16).Take();
    ASSERT_TRUE(graph::RunPasses(g, {}).ok());
    std::map<graph::Op, int> counts;
    for (const graph::Node& n : g.nodes) ++counts[n.op];
    EXPECT_EQ(counts[graph::Op::kGemm], 2 * 4 + 1) << name;
    EXPECT_EQ(counts[graph::Op::kRotary], 0) << name;
    EXPECT_EQ(counts[graph::Op::kGroupQueryAttention], 2) << name;
    EXPECT_EQ(counts[graph::Op::kGatedActivation], 2) << name;
    EXPECT_EQ(counts[graph::Op::kSkipRmsNorm], 4) << name;
  }
}

TEST(OnnxDecoderGraph, KeepsWindowsAndSoftCaps) {
  const auto m = Import(kRoot + "plain_gemma2").Take();
  EXPECT_EQ(m.model->config.sliding_window, 7);
  EXPECT_EQ(m.model->config.is_local, (std::vector<uint8_t>{1, 0}));
  const graph::Graph g = BuildGraph(m, 16).Take();
  for (const graph::Node& n : g.nodes)
    if (n.op == graph::Op::kGroupQueryAttention) {
      EXPECT_NEAR(n.Float(graph::AttrKey::kSoftcap), 2.0, 1e-6);
      EXPECT_NEAR(n.Float(graph::AttrKey::kScale), std::pow(24.0, -0.5), 1e-6);
    }
}

// Codes, scales and zero points are those of the file: MatMulNBits' formula over its bytes.
TEST(OnnxDecoderWeights, AreTheCodesOfTheFile) {
  const auto m = Import(kRoot + "builder_int4").Take();
  const onnx::Model file = onnx::ReadModel(kRoot + "builder_int4/model.onnx").Take();
  const auto find = [&](const std::string& name) -> const onnx::Tensor& {
    for (const onnx::Tensor& t : file.graph.initializers)
      if (t.name == name) return t;
    ADD_FAILURE() << name;
    return file.graph.initializers[0];
  };
  int checked = 0;
  for (const model::Tensor& t : m.model->tensors) {
    if (!t.grouped || t.grouped->bits != 4) continue;
    const std::string stem = t.name.substr(0, t.name.rfind("_Q4"));
    const std::string base = stem.substr(0, stem.rfind("weight"));
    const auto* codes = reinterpret_cast<const uint8_t*>(find(t.name).data.data());
    const auto* zeros = reinterpret_cast<const uint8_t*>(find(base + "weight_zp").data.data());
    const onnx::Tensor& s = find(base + "weight_scales");
    const int64_t k = t.dims[1], groups = s.dims[1], block = t.grouped->group >= 32 ? 32 : 16;
    const std::vector<float> got = model::DequantizeAll(t);
    for (int64_t row = 0; row < t.dims[0]; ++row)
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = row * groups * block + i, g = i / block, z = row * ((groups + 1) / 2 * 2) + g;
        float scale = 0;
        std::memcpy(&scale, s.data.data() + (row * groups + g) * 4, 4);
        const int code = codes[at / 2] >> (4 * (at % 2)) & 15, zero = zeros[z / 2] >> (4 * (z % 2)) & 15;
        ASSERT_EQ(got[static_cast<size_t>(row * k + i)], scale * static_cast<float>(code - zero)) << t.name << " " << row << " " << i;
      }
    ++checked;
  }
  EXPECT_EQ(checked, 2 * 5);  // q|k|v, o, gate, up, down
  EXPECT_TRUE(m.model->config.tied_head);
}

// A copy of a case with its graph changed.
class Changed {
 public:
  Changed(const std::string& name, const std::function<void(onnx::Graph&)>& change)
      : folder_(fs::temp_directory_path() / ("slm_importer_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::copy(kRoot + name, folder_);
    onnx::Model m = onnx::ReadModel((folder_ / "model.onnx").string()).Take();
    change(m.graph);
    std::string message;
    const auto keep = [&](std::span<const std::byte> part) {
      message.append(reinterpret_cast<const char*>(part.data()), part.size());
      return Ok();
    };
    EXPECT_TRUE(onnx::WriteModel(m, {.external_from_bytes = UINT64_MAX, .data_name = "d"}, keep, keep).ok());
    std::ofstream(folder_ / "model.onnx", std::ios::binary) << message;
  }
  ~Changed() { fs::remove_all(folder_); }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

  std::string folder() const { return folder_.string(); }
  std::string Message() const {
    const auto m = Import(folder_.string());
    return m.ok() ? "" : m.error().message();
  }

 private:
  fs::path folder_;
};

onnx::Node& NodeOf(onnx::Graph& g, const std::string& op, int number = 0) {
  for (onnx::Node& n : g.nodes)
    if (n.op_type == op && number-- == 0) return n;
  ADD_FAILURE() << op;
  return g.nodes[0];
}

void ExpectRefusal(const std::string& message, const std::vector<std::string>& parts) {
  EXPECT_NE(message, "");
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

onnx::Attribute Int(const char* name, int64_t v) {
  onnx::Attribute a;
  a.name = name;
  a.kind = onnx::Attribute::Kind::kInt;
  a.ints = {v};
  return a;
}

TEST(OnnxDecoderRefusal, UnchangedIsTaken) {
  EXPECT_EQ(Changed("plain_f32", [](onnx::Graph&) {}).Message(), "");
  EXPECT_EQ(Changed("builder_int4", [](onnx::Graph&) {}).Message(), "");
}

TEST(OnnxDecoderRefusal, OperatorsAreNamed) {
  ExpectRefusal(
      Changed("builder_f32", [](onnx::Graph& g) { NodeOf(g, "MatMul").op_type = "QMoE", NodeOf(g, "QMoE").domain = "com.microsoft"; })
          .Message(),
      {"model.onnx", "layers/0", "com.microsoft.QMoE"});
  ExpectRefusal(Changed("plain_f32", [](onnx::Graph& g) { NodeOf(g, "Sigmoid").op_type = "Erf"; }).Message(), {"model.onnx", "Erf"});
}

TEST(OnnxDecoderRefusal, WhatWouldChangeTheAnswer) {
  const auto with = [](const char* name, int64_t v) {
    return Changed("builder_f32", [&](onnx::Graph& g) { NodeOf(g, "GroupQueryAttention").attributes.push_back(Int(name, v)); }).Message();
  };
  ExpectRefusal(with("smooth_softmax", 1), {"GroupQueryAttention", "smooth_softmax"});
  ExpectRefusal(with("causal", 0), {"causal"});
  // A mask that lets tokens see what comes after them; one that is shifted.
  ExpectRefusal(Changed("plain_f32", [](onnx::Graph& g) { NodeOf(g, "LessOrEqual").op_type = "GreaterOrEqual"; }).Message(),
                {"mask", "causal"});
  ExpectRefusal(Changed("plain_f32", [](onnx::Graph& g) { NodeOf(g, "LessOrEqual").op_type = "Less"; }).Message(), {"mask"});
  // Lengths that are off by one; positions that are none.
  ExpectRefusal(Changed("builder_f32", [](onnx::Graph& g) { NodeOf(g, "Sub").op_type = "Add"; }).Message(), {"lengths"});
  ExpectRefusal(Changed("builder_f32", [](onnx::Graph& g) { NodeOf(g, "RotaryEmbedding").inputs[1] = "attention_mask"; }).Message(),
                {"positions"});
  // Halves that turn the other way are no rotation of ours.
  ExpectRefusal(Changed("plain_f32",
                        [](onnx::Graph& g) {
                          std::swap(NodeOf(g, "Neg").inputs[0], NodeOf(g, "Neg").inputs[0]), NodeOf(g, "Neg").op_type = "Identity";
                        })
                    .Message(),
                {"Concat"});
  // Keys of one layer with values of the other.
  ExpectRefusal(
      Changed("builder_f32", [](onnx::Graph& g) { NodeOf(g, "GroupQueryAttention").inputs[4] = "past_key_values.1.value"; }).Message(),
      {"cache"});
}

// Each product is small enough alone: 500^3 steps, of which 2^29 are done in all. Five are more.
TEST(OnnxDecoderRefusal, WorkWithoutTokensIsBounded) {
  const std::vector<float> ones(500 * 500, 1);
  const std::string message = Changed("plain_f32", [&](onnx::Graph& g) {
                                onnx::Tensor t;
                                t.name = "square";
                                t.type = onnx::ElementType::kFloat;
                                t.dims = {500, 500};
                                t.data = std::as_bytes(std::span(ones));
                                g.initializers.push_back(t);
                                std::vector<onnx::Node> products;
                                for (int i = 0; i < 100; ++i) {
                                  onnx::Node n;
                                  n.op_type = "MatMul";
                                  n.name = "product." + std::to_string(i);
                                  n.inputs = {"square", "square"};
                                  n.outputs = {n.name};
                                  products.push_back(std::move(n));
                                }
                                g.nodes.insert(g.nodes.begin(), products.begin(), products.end());
                              }).Message();
  ExpectRefusal(message, {"model.onnx", "\"product.4\"", "steps"});
}

// A head that reads the embedding's codes is the same tensor, so that it is packed once.
TEST(OnnxDecoderWeights, CodesAskedForTwiceAreOneTensor) {
  const std::vector<std::byte> codes(2 * 32);
  const float one = 1;
  onnx::Tensor values, scales;
  values.type = onnx::ElementType::kUint8;
  values.dims = {2, 32};
  values.data = codes;
  scales.type = onnx::ElementType::kFloat;
  scales.data = std::as_bytes(std::span(&one, 1));
  WeightView v;
  v.values = &values, v.scales = &scales;
  Weights weights;
  const model::Tensor* first = weights.Matrix(v, Rows::kFirst).Take();
  EXPECT_EQ(weights.Matrix(v, Rows::kFirst).Take(), first);
  EXPECT_NE(weights.Matrix(v, Rows::kLast).Take(), first);
  EXPECT_EQ(weights.Take().size(), 2u);
}

TEST(OnnxDecoderRefusal, ShapesAndNames) {
  ExpectRefusal(Changed("builder_int4",
                        [](onnx::Graph& g) {
                          for (onnx::Attribute& a : NodeOf(g, "MatMulNBits").attributes)
                            if (a.name == "N") a.ints = {a.ints[0] + 1};
                        })
                    .Message(),
                {"MatMulNBits", "codes"});
  ExpectRefusal(Changed("builder_int4",
                        [](onnx::Graph& g) {
                          for (onnx::Attribute& a : NodeOf(g, "MatMulNBits").attributes)
                            if (a.name == "block_size") a.ints = {int64_t{1} << 62};
                        })
                    .Message(),
                {"MatMulNBits", "blocks"});
  ExpectRefusal(
      Changed("plain_f32", [](onnx::Graph& g) { g.inputs[0].name = "tokens", NodeOf(g, "Gather", 0).inputs[1] = "tokens"; }).Message(),
      {"tokens"});
  ExpectRefusal(Changed("plain_f32", [](onnx::Graph& g) { std::swap(g.outputs[1], g.outputs.back()), g.outputs.pop_back(); }).Message(),
                {"cache"});
}

onnx::Attribute& AttributeOf(onnx::Node& n, const std::string& name) {
  for (onnx::Attribute& a : n.attributes)
    if (a.name == name) return a;
  ADD_FAILURE() << name;
  return n.attributes[0];
}

TEST(OnnxDecoderRefusal, AttentionThatIsNotOurs) {
  const auto own = [](const std::function<void(onnx::Node&)>& change) {
    return Changed("operators_24", [&](onnx::Graph& g) { change(NodeOf(g, "Attention")); }).Message();
  };
  ExpectRefusal(own([](onnx::Node& n) { AttributeOf(n, "is_causal").ints = {0}; }), {"layers.0", "Attention", "causal"});
  ExpectRefusal(own([](onnx::Node& n) { n.inputs[5] = "past_key_values.1.value"; }), {"Attention", "cache of one layer"});
  ExpectRefusal(own([](onnx::Node& n) { n.inputs.resize(7), n.inputs[6] = "position_ids"; }), {"nonpad_kv_seqlen"});
  ExpectRefusal(own([](onnx::Node& n) { n.inputs[4] = n.inputs[5] = ""; }), {"cache"});
  ExpectRefusal(own([](onnx::Node& n) { AttributeOf(n, "kv_num_heads").ints = {4}; }), {"heads"});
  ExpectRefusal(own([](onnx::Node& n) { AttributeOf(n, "q_num_heads").ints = {int64_t{1} << 62}; }), {"Attention"});
  ExpectRefusal(own([](onnx::Node& n) { n.attributes.push_back(Int("left_window_size", 3)); }), {"windows"});
  // A mask that is the wrong way round; without one every token would be seen.
  ExpectRefusal(Changed("operators_23", [](onnx::Graph& g) { NodeOf(g, "LessOrEqual").op_type = "GreaterOrEqual"; }).Message(),
                {"Attention", "causal"});
  ExpectRefusal(Changed("operators_23", [](onnx::Graph& g) { NodeOf(g, "Attention").inputs.resize(3); }).Message(), {"causal"});
  // Causal, where the cache is joined before: the first query would be the first of all keys.
  ExpectRefusal(Changed("operators_23",
                        [](onnx::Graph& g) {
                          NodeOf(g, "Attention").inputs.resize(3);
                          NodeOf(g, "Attention").attributes.push_back(Int("is_causal", 1));
                        })
                    .Message(),
                {"causal"});
  const auto many = [](const std::function<void(onnx::Node&)>& change) {
    return Changed("branching", [&](onnx::Graph& g) { change(NodeOf(g, "MultiHeadAttention")); }).Message();
  };
  ExpectRefusal(many([](onnx::Node& n) { n.inputs[5] = ""; }), {"MultiHeadAttention", "causal"});
  ExpectRefusal(many([](onnx::Node& n) { n.inputs[1] = n.inputs[2] = ""; }), {"MultiHeadAttention", "packed"});
  ExpectRefusal(many([](onnx::Node& n) { n.inputs[3] = "threshold"; }), {"MultiHeadAttention"});
  ExpectRefusal(many([](onnx::Node& n) { n.inputs.resize(9), n.inputs[8] = "position_ids"; }), {"past_sequence_length"});
}

// Tables that the call works out have to be those of the positions.
TEST(OnnxDecoderRefusal, RotationsOfOtherPositions) {
  ExpectRefusal(Changed("operators_24", [](onnx::Graph& g) { NodeOf(g, "RotaryEmbedding").inputs[1] = "attention_mask"; }).Message(),
                {"RotaryEmbedding", "table"});
  ExpectRefusal(Changed("operators_23", [](onnx::Graph& g) { NodeOf(g, "RotaryEmbedding").inputs[3] = "attention_mask"; }).Message(),
                {"RotaryEmbedding", "positions"});
}

TEST(OnnxDecoderBranches, HoldUpToTheLengthThatTheConditionNames) {
  const auto context = [](const std::function<void(onnx::Graph&)>& change) {
    const Changed c("branching", change);
    const auto m = Import(c.folder());
    return m.ok() ? m.value().model->config.max_context : -1;
  };
  EXPECT_EQ(context([](onnx::Graph&) {}), 40);                                                      // total > 40
  EXPECT_EQ(context([](onnx::Graph& g) { NodeOf(g, "Greater").op_type = "GreaterOrEqual"; }), 39);  // total >= 40
  EXPECT_EQ(context([](onnx::Graph& g) { NodeOf(g, "Greater").op_type = "Less"; }), 39);            // total < 40, the other tables
  EXPECT_EQ(context([](onnx::Graph& g) { NodeOf(g, "Greater").inputs[1] = NodeOf(g, "Greater").inputs[0]; }), 40);  // never; 40 rows
  EXPECT_EQ(context([](onnx::Graph& g) {                                                                            // always; 64 rows
              onnx::Node& n = NodeOf(g, "Greater");
              n.op_type = "Equal", n.inputs[1] = n.inputs[0];
            }),
            64);
}

TEST(OnnxDecoderBranches, OtherConditionsAreRefused) {
  const auto with = [](const std::function<void(onnx::Graph&)>& change) { return Changed("branching", change).Message(); };
  ExpectRefusal(with([](onnx::Graph& g) {
                  const std::string counted = NodeOf(g, "Greater").inputs[0];
                  for (onnx::Node& n : g.nodes)
                    if (n.outputs[0] == counted)
                      for (onnx::Node& shape : g.nodes)
                        if (shape.outputs[0] == n.inputs[0]) shape.inputs[0] = "input_ids";
                }),
                {"/rope/If", "how many tokens a call has"});
  ExpectRefusal(with([](onnx::Graph& g) { NodeOf(g, "If").inputs[0] = "input_ids"; }), {"/rope/If", "depends on the tokens"});
  ExpectRefusal(with([](onnx::Graph& g) { NodeOf(g, "If").inputs[0] = "attention_mask"; }), {"/rope/If", "truth value"});
  ExpectRefusal(
      with([](onnx::Graph& g) { std::erase_if(NodeOf(g, "If").attributes, [](const auto& a) { return a.name == "else_branch"; }); }),
      {"/rope/If", "else_branch"});
}

// As the model builder writes it: "kv_cache_dim". The folder says how many.
TEST(OnnxDecoderNames, AnOpenWidthOfTheCacheIsTheFolders) {
  const auto open = [](onnx::Graph& g) {
    for (auto* list : {&g.inputs, &g.outputs})
      for (onnx::ValueInfo& v : *list)
        if (v.type.shape.size() == 4) v.type.shape[3] = {-1, "kv_cache_dim"};
  };
  EXPECT_EQ(Changed("builder_int4", open).Message(), "");
  ExpectRefusal(Changed("plain_f32", open).Message(), {"past_key_values.0.key", "heads and width"});
}

TEST(OnnxDecoderNames, PatternsHoldOneNumber) {
  EXPECT_EQ(NumberIn("past.12.key", "past.%d.key"), 12);
  EXPECT_EQ(NumberIn("past.x.key", "past.%d.key"), -1);
  EXPECT_EQ(NumberIn("past..key", "past.%d.key"), -1);
  EXPECT_EQ(NumberIn("past.-1.key", "past.%d.key"), -1);
  EXPECT_EQ(NumberIn("past.99999999999.key", "past.%d.key"), -1);
  EXPECT_EQ(NumberIn("past", "past"), -1);
}

}  // namespace
}  // namespace slm::importer
