// Verify and InferShapes: a sound graph passes, each broken one is refused with the rule that it breaks.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/graph.h"
#include "graph/testing/synthetic.h"

namespace slm::graph {
namespace {

Graph Sound() { return BuildDecoder(testing::ModelOfShapes(testing::SmallConfig()), {16}).Take(); }

Node& Find(Graph& g, const std::string& name) {
  return *std::find_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.name == name; });
}

void SetAttr(Node& n, AttrKey key, int64_t value) {
  for (Attr& a : n.attrs)
    if (a.key == key) a.value = value;
}

struct Flaw {
  const char* name;
  const char* says;  // part of the message
  void (*make)(Graph& g);
};

class VerifyRefuses : public ::testing::TestWithParam<Flaw> {};

TEST_P(VerifyRefuses, WithTheRule) {
  Graph g = Sound();
  ASSERT_TRUE(Verify(g).ok());
  GetParam().make(g);
  const Status s = Verify(g);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code(), Code::kInternal);
  EXPECT_NE(s.error().message().find(GetParam().says), std::string::npos) << s.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifyRefuses,
    ::testing::Values(
        Flaw{"order", "not computed before", [](Graph& g) { std::swap(g.nodes[1], g.nodes[2]); }},
        Flaw{"node_names", "node names", [](Graph& g) { g.nodes[3].name = g.nodes[2].name; }},
        Flaw{"value_names", "value names", [](Graph& g) { g.values[g.nodes[3].outputs[0]].name = g.values[g.nodes[2].outputs[0]].name; }},
        Flaw{"two_producers", "computed twice", [](Graph& g) { g.nodes[3].outputs[0] = g.nodes[2].outputs[0]; }},
        Flaw{"dangling_input", "does not exist", [](Graph& g) { g.nodes[2].inputs[0] = 100000; }},
        Flaw{"absent_input", "does not exist", [](Graph& g) { g.nodes[2].inputs[0] = kNoValue; }},
        Flaw{"arity", "4 inputs", [](Graph& g) { g.nodes[2].inputs.resize(4, g.nodes[2].inputs[0]); }},
        Flaw{"outputs", "2 outputs",
             [](Graph& g) {
               g.nodes[2].outputs.push_back(g.AddValue({"extra", {kT}, ElementType::kF32, nullptr}));
             }},
        Flaw{"shape", "the rule says",
             [](Graph& g) {
               g.values[g.nodes[2].outputs[0]].shape = {kT, 7};
             }},
        Flaw{"gemm_k", "share K", [](Graph& g) { Find(g, "layers.0.o_proj").inputs[1] = Find(g, "layers.0.down_proj").inputs[1]; }},
        Flaw{"bias", "expected", [](Graph& g) { Find(g, "layers.0.o_proj").inputs.push_back(g.input_ids); }},
        Flaw{"heads", "kv_num_heads", [](Graph& g) { SetAttr(Find(g, "layers.0.attn"), AttrKey::kKvNumHeads, 3); }},
        Flaw{"rotary_tables", "do_rotary", [](Graph& g) { SetAttr(Find(g, "layers.0.attn"), AttrKey::kDoRotary, 1); }},
        Flaw{"rotary_dim", "disagree", [](Graph& g) { SetAttr(Find(g, "layers.0.q_rope"), AttrKey::kRotaryDim, 4); }},
        Flaw{"logits", "logits", [](Graph& g) { g.nodes.pop_back(); }},
        Flaw{"input_type", "i64", [](Graph& g) { g.values[g.input_ids].type = ElementType::kF32; }},
        Flaw{"constant_rows", "sum up",
             [](Graph& g) {
               Value& w = g.values[Find(g, "layers.0.o_proj").inputs[1]];
               auto c = std::make_shared<Constant>(*w.constant);
               c->parts[0].row_end -= 1;
               w.constant = c;
             }},
        Flaw{"constant_range", "outside",
             [](Graph& g) {
               Value& w = g.values[Find(g, "layers.0.o_proj").inputs[1]];
               auto c = std::make_shared<Constant>(*w.constant);
               c->parts[0].row_end += 1;
               w.constant = c;
             }},
        Flaw{"constant_data", "disagree",
             [](Graph& g) {
               Value& cos = g.values[Find(g, "layers.0.q_rope").inputs[1]];
               auto c = std::make_shared<Constant>(*cos.constant);
               c->data.pop_back();
               cos.constant = c;
             }}),
    [](const auto& i) { return i.param.name; });

// A node `op` over inputs of the given shapes; the shape of output 0, or the empty shape when refused.
Shape Inferred(Op op, const std::vector<Shape>& in, std::vector<Shape> out = {{}}, std::vector<Attr> attrs = {}) {
  Graph g;
  Node n{op, "n", {}, {}, std::move(attrs), -1};
  for (const Shape& s : in) n.inputs.push_back(g.AddValue({"in", s, ElementType::kF32, nullptr}));
  for (const Shape& s : out) n.outputs.push_back(g.AddValue({"out", s, ElementType::kF32, nullptr}));
  const ValueId first = n.outputs[0];
  g.nodes.push_back(std::move(n));
  const Status s = InferShapes(g);
  if (!s.ok()) {
    EXPECT_EQ(s.error().code(), Code::kCorrupt);
  }
  return s.ok() ? g.values[first].shape : Shape{};
}

TEST(InferShapes, BroadcastsAsOnnx) {
  EXPECT_EQ(Inferred(Op::kAdd, {{kT, 8}, {kT, 8}}), (Shape{kT, 8}));
  EXPECT_EQ(Inferred(Op::kMul, {{kT, 8}, {1}}), (Shape{kT, 8}));
  EXPECT_EQ(Inferred(Op::kMul, {{8}, {kT, 1}}), (Shape{kT, 8}));
  EXPECT_EQ(Inferred(Op::kDiv, {{3, 1, 5}, {4, 1}}), (Shape{3, 4, 5}));
  EXPECT_EQ(Inferred(Op::kAdd, {{kT, 8}, {7}}), Shape{});
  EXPECT_EQ(Inferred(Op::kAdd, {{kT, 8}, {2, 8}}), Shape{});
}

TEST(InferShapes, ReshapeAndSplitKeepTheNumberOfValues) {
  EXPECT_EQ(Inferred(Op::kReshape, {{kT, 12}}, {{kT, 3, 4}}), (Shape{kT, 3, 4}));
  EXPECT_EQ(Inferred(Op::kReshape, {{kT, 12}}, {{kT, 3, 5}}), Shape{});
  EXPECT_EQ(Inferred(Op::kReshape, {{kT, 12}}, {{12, kT}}), Shape{});
  EXPECT_EQ(Inferred(Op::kSplit, {{kT, 12}}, {{kT, 8}, {kT, 4}}), (Shape{kT, 8}));
  EXPECT_EQ(Inferred(Op::kSplit, {{kT, 12}}, {{kT, 8}, {kT, 8}}), Shape{});
  EXPECT_EQ(Inferred(Op::kSplit, {{kT, 12}}, {{kT, 12}, {kT, 0}}), Shape{});
}

TEST(InferShapes, MatrixOperators) {
  const std::vector<Attr> trans = {{AttrKey::kTransB, int64_t{1}}};
  EXPECT_EQ(Inferred(Op::kGemm, {{kT, 12}, {5, 12}}, {{}}, trans), (Shape{kT, 5}));
  EXPECT_EQ(Inferred(Op::kGemm, {{kT, 12}, {5, 12}, {5}}, {{}}, trans), (Shape{kT, 5}));
  EXPECT_EQ(Inferred(Op::kGemm, {{kT, 12}, {5, 12}, {12}}, {{}}, trans), Shape{});
  EXPECT_EQ(Inferred(Op::kGemm, {{kT, 12}, {12, 5}}, {{}}, trans), Shape{});
  EXPECT_EQ(Inferred(Op::kGemm, {{kT, 12}, {5, 12}}), Shape{}) << "transB is needed";
  EXPECT_EQ(Inferred(Op::kGather, {{96, 12}, {kT}}), (Shape{kT, 12}));
  EXPECT_EQ(Inferred(Op::kRmsNorm, {{kT, 3, 4}, {4}}), (Shape{kT, 3, 4}));
  EXPECT_EQ(Inferred(Op::kRmsNorm, {{kT, 12}, {4}}), Shape{});
  EXPECT_EQ(Inferred(Op::kGatedActivation, {{kT, 12}}), (Shape{kT, 6}));
  EXPECT_EQ(Inferred(Op::kGatedActivation, {{kT, 11}}), Shape{});
}

TEST(BuildDecoder, RefusesWhatDoesNotFit) {
  auto refused = [](auto change, int context = 16) {
    auto m = testing::ModelOfShapes(testing::SmallConfig());
    change(*m);
    auto g = BuildDecoder(m, {context});
    return g.ok() ? std::string() : std::string(CodeName(g.error().code())) + " " + g.error().message();
  };
  using model::Model;
  EXPECT_EQ(refused([](Model&) {}), "");
  EXPECT_EQ(refused([](Model&) {}, 0).rfind("invalid_argument", 0), 0u);
  EXPECT_EQ(refused([](Model&) {}, 2000000000).rfind("invalid_argument", 0), 0u);
  EXPECT_NE(refused([](Model& m) { m.config.tied_head = false; }).find("output head is missing"), std::string::npos);
  EXPECT_EQ(refused([](Model& m) { m.config.d_ff = 64; }).rfind("corrupt", 0), 0u);
  EXPECT_EQ(refused([](Model& m) { m.config.n_kv_heads = 3; }).rfind("corrupt", 0), 0u);
  EXPECT_EQ(refused([](Model& m) { m.config.rope.rotary_dim = 16; }).rfind("corrupt", 0), 0u);
  EXPECT_EQ(refused([](Model& m) { m.config.is_local = {1}; }).rfind("corrupt", 0), 0u);
  EXPECT_EQ(refused([](Model& m) { m.config.n_layers = 0; }).rfind("corrupt", 0), 0u);
  EXPECT_EQ(refused([](Model& m) { m.config.n_layers = 3; }).rfind("not_found", 0), 0u);
  EXPECT_EQ(refused([](Model& m) { m.config.qkv_bias = true; }).rfind("not_found", 0), 0u);
}

}  // namespace
}  // namespace slm::graph
