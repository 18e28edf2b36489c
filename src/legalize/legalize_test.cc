// Each rewrite on a graph whose values ONNX Runtime computed (tests/tiny/make_legalize.py), for a target that has a few plain operators;
// then the driver: what it keeps, what it says.
#include "legalize/legalize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "legalize/rewrites.h"
#include "legalize/state.h"
#include "reference/testing/array_json.h"

namespace slm::legalize {
namespace {

using nlohmann::json;
using reference::Array;
using reference::ArrayOf;

const std::string kFolder = std::string(SLM_SOURCE_DIR) + "/tests/tiny/legalize/";

const json& Cases() {
  static const json cases = [] {
    std::ifstream in(kFolder + "cases.json");
    return json::parse(in);
  }();
  return cases;
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& [name, c] : Cases().items()) names.push_back(name);
  return names;
}

// Takes the plain operators and `native`, not `refused`.
targets::Target PlainTarget(const json& native, const json& refused, const char* more = "") {
  static const std::vector<std::string> plain = {"Add",
                                                 "Sub",
                                                 "Mul",
                                                 "Div",
                                                 "Sqrt",
                                                 "Erf",
                                                 "Tanh",
                                                 "Sigmoid",
                                                 "MatMul",
                                                 "Softmax",
                                                 "Where",
                                                 "Less",
                                                 "Greater",
                                                 "Or",
                                                 "Not",
                                                 "Gather",
                                                 "Slice",
                                                 "Concat",
                                                 "Cast",
                                                 "Expand",
                                                 "Transpose",
                                                 "Reshape",
                                                 "Unsqueeze",
                                                 "Squeeze",
                                                 "Identity",
                                                 "ReduceSum",
                                                 "Reciprocal",
                                                 "ReduceMean",
                                                 "ScatterElements",
                                                 "DequantizeLinear"};
  json rows = json::array();
  std::vector<std::string> taken;
  for (const std::string& op : plain)
    if (std::find(refused.begin(), refused.end(), op) == refused.end()) taken.push_back(op);
  for (const json& op : native) taken.push_back(op);
  for (const std::string& op : taken) {
    json row = {{"op", op}, {"source", "test"}};
    if (op == "Softmax") row["with"] = {{"axis", {"last", nullptr}}};
    rows.push_back(row);
  }
  json d = {{"schema", 1},
            {"name", "plain"},
            {"title", "a target of plain operators"},
            {"runtime", "none"},
            {"sources", {{"test", {{"assumed", "a test"}}}}},
            {"shapes", {{"static_only", false}, {"source", "test"}}},
            {"unlisted", {{"reason", "not listed"}, {"source", "test"}}},
            {"operators", rows}};
  if (*more) d.update(json::parse(more));
  auto t = targets::ParseTarget(d.dump(), "plain");
  EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.error().message());
  return t.Take();
}

std::shared_ptr<const onnx::Model> ReadShared(const std::string& path) {
  auto m = onnx::ReadModel(path);
  EXPECT_TRUE(m.ok()) << (m.ok() ? "" : m.error().message());
  return std::make_shared<const onnx::Model>(m.Take());
}

// The graph computes what ONNX Runtime computed for the case.
void ExpectValues(const onnx::Model& model, const json& c) {
  std::vector<Array> inputs;
  for (const json& in : c["inputs"]) inputs.push_back(ArrayOf(in));
  const auto got = reference::RunGraph(model, inputs);
  ASSERT_TRUE(got.ok()) << got.error().message();
  ASSERT_EQ(got.value().size(), c["outputs"].size());
  for (size_t k = 0; k < got.value().size(); ++k) {
    const Array want = ArrayOf(c["outputs"][k]);
    const bool half = want.type == onnx::ElementType::kFloat16;
    const auto d = reference::Compare(got.value()[k], want, {.relative = half ? 2e-3 : 2e-5, .absolute = half ? 1e-3 : 2e-6});
    EXPECT_FALSE(d.differs) << "output " << k << " " << d.where;
  }
}

class Rewriting : public testing::TestWithParam<std::string> {};

TEST_P(Rewriting, ComputesWhatOnnxRuntimeComputes) {
  const json& c = Cases()[GetParam()];
  const auto model = ReadShared(kFolder + GetParam() + ".onnx");
  Options options;
  options.dims = c["dims"].get<std::map<std::string, int64_t>>();
  auto done = Legalize(model, PlainTarget(c["native"], c["refused"]), options);
  ASSERT_TRUE(done.ok()) << done.error().message();
  const Report& report = done.value().report;
  for (const Left& l : report.left) ADD_FAILURE() << l.node << " (" << l.op << "): " << l.reason << "; " << l.tried;
  for (const Refused& r : report.refused) ADD_FAILURE() << r.rewrite << ": " << r.why;
  std::vector<std::string> made;
  for (const Rewritten& w : report.rewritten) {
    made.insert(made.end(), w.rewrites.begin(), w.rewrites.end());
    EXPECT_EQ(w.comparison.outcome, Comparison::Outcome::kEqual) << w.comparison.why;
  }
  for (const json& name : c["rewrites"]) EXPECT_TRUE(std::find(made.begin(), made.end(), name) != made.end()) << name;
  EXPECT_EQ(made.empty(), c["rewrites"].empty());
  for (const onnx::Node& n : done.value().model.graph.nodes)
    EXPECT_TRUE(std::find(c["gone"].begin(), c["gone"].end(), n.op_type) == c["gone"].end()) << n.op_type << " is still there";
  ExpectValues(done.value().model, c);
}
INSTANTIATE_TEST_SUITE_P(Cases, Rewriting, testing::ValuesIn(CaseNames()), [](const auto& p) { return p.param; });

// Every name of the list is made by a case.
TEST(Rewrites, EachHasACase) {
  std::set<std::string> made;
  for (const auto& [name, c] : Cases().items())
    for (const json& r : c["rewrites"]) made.insert(r);
  for (const RewriteEntry& r : AllRewrites()) EXPECT_TRUE(made.contains(r.name)) << r.name;
}

// Each row of the list by itself, whatever a target says: at every node of a case that it is for, and of what another row made of it.
void ApplyRows(const State& state, const json& c, int depth, std::set<const RewriteEntry*>& proved) {
  const auto flat = targets::Flatten(state.model, {});
  ASSERT_TRUE(flat.ok());
  const onnx::Graph& g = state.model.graph;
  ASSERT_EQ(flat.value().nodes.size(), g.nodes.size());  // no bodies: a node has the same place in both
  Zeros zeros;
  for (size_t at = 0; at < g.nodes.size(); ++at)
    for (const RewriteEntry& r : AllRewrites()) {
      if (g.nodes[at].op_type != r.op || g.nodes[at].domain != r.domain) continue;
      const auto piece = r.function({g, flat.value(), at, static_cast<int>(at), onnx::OpsetVersion(state.model.opsets, ""), zeros});
      if (!piece || !CanRaise(state.model, piece->least_opset)) continue;
      SCOPED_TRACE(std::string(r.name) + " of " + OpName(g.nodes[at]));
      const State next = Apply(state, *piece);
      ExpectValues(next.model, c);
      proved.insert(&r);
      if (depth > 1) ApplyRows(next, c, depth - 1, proved);
    }
}

TEST(Rewrites, EachRowHasACase) {
  std::set<const RewriteEntry*> proved;
  for (const auto& [name, c] : Cases().items()) {
    SCOPED_TRACE(name);
    const auto model = ReadShared(kFolder + name + ".onnx");
    State state{Borrow(*model), {}};
    FixDims(state.model.graph, c["dims"].get<std::map<std::string, int64_t>>());
    ASSERT_TRUE(Fold(state).ok());
    ApplyRows(state, c, 2, proved);
  }
  for (const RewriteEntry& r : AllRewrites()) {
    // The same operator in two domains has the same function; ONNX Runtime knows SimplifiedLayerNormalization in ONNX's own only.
    const auto is_of = [&](const RewriteEntry* p) { return p->function == r.function && std::string_view(p->op) == r.op; };
    EXPECT_TRUE(std::any_of(proved.begin(), proved.end(), is_of)) << r.name << " of " << r.domain << " " << r.op << ": " << r.summary;
  }
}

// Two nodes that draw random numbers draw different ones.
TEST(Share, RandomNumbersStayApart) {
  onnx::Graph g;
  const auto add = [&](const char* op, const char* out) {
    onnx::Node n;
    n.op_type = op, n.inputs = {"x"}, n.outputs = {out};
    g.nodes.push_back(std::move(n));
  };
  for (const char* op : {"RandomNormalLike", "Bernoulli", "Neg"})
    for (const char* side : {"a", "b"}) add(op, (std::string(op) + side).c_str());
  ShareMade(g, {});
  std::vector<std::string> left;
  for (const onnx::Node& n : g.nodes) left.push_back(n.op_type);
  EXPECT_EQ(left, (std::vector<std::string>{"RandomNormalLike", "RandomNormalLike", "Bernoulli", "Bernoulli", "Neg"}));
}

// The present of every layer begins with room that is 0: one piece of memory for all of them.
TEST(Zeros, AreOneBuffer) {
  Zeros zeros;
  const auto first = zeros.Of(64);
  EXPECT_EQ(zeros.Of(16), first);
  EXPECT_EQ(zeros.Of(64), first);
  const auto more = zeros.Of(65);
  EXPECT_EQ(more->size(), 128u);  // doubled: what is left behind is never more than what is there
  EXPECT_TRUE(std::all_of(more->begin(), more->end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Driver, NativeNodesStay) {
  const auto model = ReadShared(kFolder + "skip_rms.onnx");
  const auto done = Legalize(model,
                             PlainTarget({"SimplifiedLayerNormalization"}, json::array(),
                                         R"({"operators": [{"op": "SkipSimplifiedLayerNormalization", "domain": "com.microsoft",
                                                    "source": "test"}]})"),
                             {});
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(done.value().report.rewritten.empty());
  EXPECT_EQ(done.value().model.graph.nodes.size(), model->graph.nodes.size());
}

TEST(Driver, SaysWhyANodeStays) {
  // Neither the operator nor its pieces: without a division and without its exchange nothing helps.
  const auto model = ReadShared(kFolder + "rms_axis_1.onnx");
  const auto done = Legalize(model, PlainTarget(json::array(), {"Div", "Reciprocal", "Sqrt"}), {});
  ASSERT_TRUE(done.ok());
  const Report& r = done.value().report;
  ASSERT_EQ(r.left.size(), 1u);
  EXPECT_EQ(r.left[0].op, "RMSNormalization");
  EXPECT_NE(r.left[0].tried.find("rms-norm-pieces makes what the target does not take either"), std::string::npos) << r.left[0].tried;
  EXPECT_TRUE(r.rewritten.empty());
  EXPECT_EQ(done.value().model.graph.nodes.size(), model->graph.nodes.size());
}

TEST(Driver, BetterIsKeptWhereNativeIsNotToBeHad) {
  // Blocked as one operator; in pieces all but the root go to the fallback.
  const auto done = Legalize(ReadShared(kFolder + "rms_axis_1.onnx"), PlainTarget(json::array(), {"Sqrt"}, R"({"fallback":
      {"target": "cpu-x86", "lacks": ["RMSNormalization", "SimplifiedLayerNormalization"], "source": "test"}})"),
                             {});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done.value().report.before.blocked, 1);
  EXPECT_EQ(done.value().report.after.blocked, 0);
  EXPECT_EQ(done.value().report.after.fallback, 1);
}

TEST(Driver, OpenLengthsAreSaid) {
  const auto model = ReadShared(kFolder + "fixed_length.onnx");
  const targets::Target target = PlainTarget(json::array(), {"If", "Shape"});
  const auto done = Legalize(model, target, {});
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done.value().report.open_dims, std::vector<std::string>{"tokens"});
  EXPECT_FALSE(done.value().report.all_native());
  const auto wrong = Legalize(model, target, {.dims = {{"token", 3}}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_NE(wrong.error().hint().find("tokens"), std::string::npos);
}

TEST(Driver, WhatIsTooLargeIsSaid) {
  // A table of 2^23 values is not dequantized to compare it.
  onnx::Model m;
  m.opsets = {{"", 21}, {"com.microsoft", 1}};
  m.ir_version = 10;
  constexpr int64_t kRows = int64_t{1} << 16, kWidth = 128;
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(kRows * kWidth / 2), std::byte{0x57});
  auto scales = std::make_shared<std::vector<float>>(static_cast<size_t>(kRows * kWidth / 16), 0.5f);
  const auto tensor = [](const char* name, onnx::ElementType type, std::vector<int64_t> dims, std::span<const std::byte> data) {
    onnx::Tensor t;
    t.name = name, t.type = type, t.dims = std::move(dims), t.data = data;
    return t;
  };
  m.graph.initializers = {tensor("table", onnx::ElementType::kUint8, {kRows, kWidth / 2}, *bytes),
                          tensor("scales", onnx::ElementType::kFloat, {kRows, kWidth / 16}, std::as_bytes(std::span(*scales)))};
  const auto info = [](const char* name, onnx::ElementType type, std::vector<onnx::Dim> shape) {
    onnx::ValueInfo v;
    v.name = name;
    v.type = {.kind = onnx::ValueType::Kind::kTensor, .element = type, .has_shape = true, .shape = std::move(shape), .inner = {}};
    return v;
  };
  m.graph.inputs = {info("ids", onnx::ElementType::kInt64, {{1, ""}, {2, ""}})};
  m.graph.outputs = {info("y", onnx::ElementType::kFloat, {{1, ""}, {2, ""}, {kWidth, ""}})};
  onnx::Node n;
  n.op_type = "GatherBlockQuantized", n.domain = "com.microsoft", n.name = "look";
  n.inputs = {"table", "ids", "scales"}, n.outputs = {"y"};
  onnx::Attribute block;
  block.name = "block_size", block.kind = onnx::Attribute::Kind::kInt, block.ints = {16};
  n.attributes = {block};
  m.graph.nodes = {n};
  const auto done = Legalize(std::make_shared<const onnx::Model>(std::move(m)), PlainTarget(json::array(), json::array()), {});
  ASSERT_TRUE(done.ok());
  ASSERT_EQ(done.value().report.rewritten.size(), 1u);
  EXPECT_EQ(done.value().report.rewritten[0].comparison.outcome, Comparison::Outcome::kTooLarge);
  EXPECT_EQ(done.value().report.whole.outcome, Comparison::Outcome::kTooLarge);
}

// Inputs and outputs that are left out, a cache of another rank, a block beyond any size: they stay as they are.
TEST(Driver, DamagedNodesStay) {
  const std::string folder = std::string(SLM_SOURCE_DIR) + "/tests/corpus/legalize_fuzz/";
  const targets::Target target = PlainTarget(json::array(), {"Div", "Reciprocal", "Erf", "ReduceMean"});
  for (const char* name : {"short_gemm", "short_div", "short_square", "short_power", "short_erf", "short_one_hot", "no_output",
                           "cache_of_rank_1", "long_block", "short_multi_head"}) {
    const auto done = Legalize(ReadShared(folder + name + ".onnx"), target, {});
    ASSERT_TRUE(done.ok()) << name << ": " << done.error().message();
    EXPECT_TRUE(done.value().report.rewritten.empty()) << name;
  }
}

TEST(Driver, CheckAsksTheSameRewrites) {
  const auto model = ReadShared(kFolder + "gqa_buffer.onnx");
  const std::string label = model->graph.nodes[0].name;
  const auto yes = Rewritable(*model, PlainTarget({"RotaryEmbedding"}, json::array()), {}, {label, "no such node"});
  ASSERT_TRUE(yes.ok());
  EXPECT_EQ(yes.value(), (std::map<std::string, std::string>{{label, "grouped-query-to-heads"}}));
  const auto no = Rewritable(*model, PlainTarget(json::array(), {"ScatterElements"}), {}, {label});
  ASSERT_TRUE(no.ok());
  EXPECT_TRUE(no.value().empty());
}

}  // namespace
}  // namespace slm::legalize
