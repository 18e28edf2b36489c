// Passes: what each must do to a graph (asserts written by hand), that it never changes a result (interpreter, every tiny model),
// and its before/after text (goldens, tests/golden/passes; SLM_BLESS=1 writes them anew).
#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "graph/testing/interpreter.h"
#include "graph/testing/synthetic.h"
#include "graph/testing/tiny_models.h"

namespace slm::graph {
namespace {

using testing::BuildOrDie;
using testing::CountOf;
using testing::Interpreter;
using testing::RelativeError;
using testing::TinyCase;
using testing::TinyCaseNamed;

// What a pass may change: nothing but the order of f64 additions (none of ours does even that) and f32 rounding of folded values.
constexpr double kSame = 1e-7;

void ExpectSound(Graph& g) {
  for (const Status& s : {InferShapes(g), Verify(g)}) EXPECT_TRUE(s.ok()) << s.error().message();
}

class EveryModel : public ::testing::TestWithParam<TinyCase> {};

TEST_P(EveryModel, EachPassAloneKeepsTheLogits) {
  const Graph plain = BuildOrDie(GetParam());
  const auto want = Interpreter(plain).Run(GetParam().prompt);
  for (const Pass& pass : AllPasses()) {
    Graph g = plain;
    pass.run(g);
    ExpectSound(g);
    EXPECT_LT(RelativeError(Interpreter(g).Run(GetParam().prompt), want), kSame) << pass.name;
  }
}

TEST_P(EveryModel, AllPassesKeepTheLogitsAndEachCanBeOff) {
  const Graph plain = BuildOrDie(GetParam());
  const auto want = Interpreter(plain).Run(GetParam().prompt);
  std::vector<std::string> switches = {""};
  for (const Pass& pass : AllPasses()) switches.push_back(pass.name);
  for (const std::string& off : switches) {
    Graph g = plain;
    const std::vector<std::string> list = off.empty() ? std::vector<std::string>{} : std::vector<std::string>{off};
    const Status s = RunPasses(g, list);
    ASSERT_TRUE(s.ok()) << s.error().message();
    const auto got = Interpreter(g).Run(GetParam().prompt);
    EXPECT_LT(RelativeError(got, want), kSame) << "off: " << off;
    EXPECT_LT(RelativeError(got, GetParam().logits), GetParam().tolerance);
  }
}

// After all passes a pass finds nothing more to do.
TEST_P(EveryModel, PassesReachAFixedPoint) {
  Graph g = BuildOrDie(GetParam());
  ASSERT_TRUE(RunPasses(g, {}).ok());
  const std::string once = Dump(g);
  for (const Pass& pass : AllPasses()) EXPECT_EQ(pass.run(g), 0) << pass.name;
  EXPECT_EQ(Dump(g), once);
}

TEST_P(EveryModel, NothingIsLeftUnfused) {
  Graph g = BuildOrDie(GetParam());
  const int layers = g.model->config.n_layers;
  ASSERT_TRUE(RunPasses(g, {}).ok());
  EXPECT_EQ(CountOf(g, Op::kGemm), 4 * layers + 1);  // qkv, o, gate|up, down; head
  EXPECT_EQ(CountOf(g, Op::kRotary), 0);
  EXPECT_EQ(CountOf(g, Op::kSwish) + CountOf(g, Op::kGelu), 0);
  EXPECT_EQ(CountOf(g, Op::kGatedActivation), layers);
  EXPECT_EQ(CountOf(g, Op::kAdd), 0);  // every residual add has a norm after it
  EXPECT_EQ(CountOf(g, Op::kSkipRmsNorm), 2 * layers);
}

INSTANTIATE_TEST_SUITE_P(All, EveryModel, ::testing::ValuesIn(testing::TinyCases()), [](const auto& i) { return i.param.name; });

const Node& Named(const Graph& g, const std::string& name) {
  return *std::find_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.name == name; });
}

TEST(FoldConstants, AddsTheOffsetToEveryNorm) {
  Graph g = BuildOrDie(TinyCaseNamed("gemma3"));
  const model::Tensor& w = *g.model->Find(model::Role::kFfnNorm, 1);
  EXPECT_EQ(FoldConstants(g), 3 * 6 + 1);  // four norms and q, k norm a layer; the final norm
  const Value& folded = g.values[Named(g, "layers.1.mlp_norm").inputs[1]];
  ASSERT_TRUE(folded.constant);
  const std::vector<float> raw = model::DequantizeAll(w);
  ASSERT_EQ(folded.constant->data.size(), raw.size());
  for (size_t i = 0; i < raw.size(); ++i) EXPECT_EQ(folded.constant->data[i], raw[i] + 1.0f);
}

TEST(FuseQkv, StacksThreePartsInOrder) {
  Graph g = BuildOrDie(TinyCaseNamed("qwen2"));
  EXPECT_EQ(FuseQkv(g), 2);
  ExpectSound(g);
  const Node& gemm = Named(g, "layers.1.qkv_proj");
  const Value &w = g.values[gemm.inputs.at(1)], &b = g.values[gemm.inputs.at(2)];
  EXPECT_EQ(w.shape, (Shape{32 + 16 + 16, 32}));
  EXPECT_EQ(b.shape, Shape{64});
  ASSERT_EQ(w.constant->parts.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const auto role = static_cast<model::Role>(static_cast<int>(model::Role::kQ) + i);
    EXPECT_EQ(w.constant->parts[i].tensor, g.model->Find(role, 1));
  }
  const Node& split = Named(g, "layers.1.qkv_split");
  EXPECT_EQ(split.op, Op::kSplit);
  EXPECT_EQ(g.values[split.outputs.at(0)].shape, (Shape{kT, 32}));
  EXPECT_EQ(g.values[split.outputs.at(2)].shape, (Shape{kT, 16}));
}

TEST(FuseQkv, JoinsTheRangesOfAFusedFileTensor) {
  Graph g = BuildOrDie(TinyCaseNamed("phi3_short"));
  EXPECT_EQ(FuseQkv(g), 2);
  const Value& w = g.values[Named(g, "layers.0.qkv_proj").inputs[1]];
  ASSERT_EQ(w.constant->parts.size(), 1u);
  EXPECT_EQ(w.constant->parts[0].row_begin, 0);
  EXPECT_EQ(w.constant->parts[0].row_end, 64);
  EXPECT_EQ(w.constant->parts[0].tensor, g.model->Find(model::Role::kQkv, 0));
}

std::shared_ptr<model::Model> Small() { return testing::ModelOfShapes(testing::SmallConfig()); }
model::Tensor& TensorOf(model::Model& m, model::Role role, int layer) { return const_cast<model::Tensor&>(*m.Find(role, layer)); }

TEST(FuseQkv, LeavesMixedTypesAlone) {
  auto m = Small();
  TensorOf(*m, model::Role::kV, 0).dtype = DType::kQ8_0;
  Graph g = BuildDecoder(m, {16}).Take();
  EXPECT_EQ(FuseQkv(g), 1);  // layer 1 only
  EXPECT_EQ(CountOf(g, Op::kGemm), 7 + 5 + 1);
}

TEST(FuseGateUp, LeavesMixedTypesAlone) {
  auto m = Small();
  TensorOf(*m, model::Role::kUp, 1).dtype = DType::kQ8_0;
  Graph g = BuildDecoder(m, {16}).Take();
  EXPECT_EQ(FuseGateUp(g), 1);
  EXPECT_EQ(CountOf(g, Op::kSwish), 1);
}

TEST(FuseGateUp, GateRowsComeFirstWhicheverSideTheMulHas) {
  Graph g = BuildDecoder(Small(), {16}).Take();
  for (Node& n : g.nodes)
    if (n.op == Op::kMul) std::swap(n.inputs[0], n.inputs[1]);
  EXPECT_EQ(FuseGateUp(g), 2);
  ExpectSound(g);
  const auto& parts = g.values[Named(g, "layers.0.gate_up_proj").inputs[1]].constant->parts;
  EXPECT_EQ(parts.at(0).tensor, g.model->Find(model::Role::kGate, 0));
  EXPECT_EQ(parts.at(1).tensor, g.model->Find(model::Role::kUp, 0));
  EXPECT_EQ(Named(g, "layers.0.gated_act").Int(AttrKey::kActivation, -1), static_cast<int>(model::Activation::kSilu));
}

TEST(FuseGateUp, LeavesAGateThatIsReadTwice) {
  Graph g = BuildDecoder(Small(), {16}).Take();
  // The residual of layer 0's MLP now also reads the activation through another product.
  const auto mul = std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == Op::kMul; });
  Node second = *mul;
  second.name = "second";
  second.outputs = {g.AddValue({"second", {kT, 48}, ElementType::kF32, nullptr})};
  g.nodes.insert(mul + 1, second);
  EXPECT_EQ(FuseGateUp(g), 1);
  ExpectSound(g);
}

TEST(FuseSkipRmsNorm, KeepsTheSumForTheNextResidual) {
  Graph g = BuildDecoder(Small(), {16}).Take();
  EXPECT_EQ(FuseSkipRmsNorm(g), 4);
  const Node& n = Named(g, "layers.0.mlp_norm");
  EXPECT_EQ(n.op, Op::kSkipRmsNorm);
  EXPECT_EQ(g.values[n.inputs.at(0)].name, "embed_tokens");     // the stream
  EXPECT_EQ(g.values[n.inputs.at(1)].name, "layers.0.o_proj");  // what is added
  EXPECT_EQ(g.values[n.outputs.at(1)].name, "layers.0.attn_add");
  EXPECT_EQ(Named(g, "layers.1.attn_norm").inputs[0], Named(g, "layers.0.mlp_norm").outputs[1]) << "x of the next add";
  EXPECT_FLOAT_EQ(n.Float(AttrKey::kEpsilon), 1e-5f);
}

TEST(FuseRope, MovesTablesIntoTheAttentionAndSkipsLayersWithout) {
  Graph g = BuildOrDie(TinyCaseNamed("smollm3"));
  EXPECT_EQ(FuseRope(g), 1);
  const Node &with = Named(g, "layers.0.attn"), &without = Named(g, "layers.1.attn");
  EXPECT_EQ(with.Int(AttrKey::kDoRotary), 1);
  EXPECT_EQ(with.inputs.at(kGqaPositions), g.input_positions);
  EXPECT_EQ(g.values[with.inputs.at(kGqaCos)].name, "rope.cos");
  EXPECT_EQ(g.values[with.inputs.at(kGqaQuery)].name, "layers.0.q_proj");
  EXPECT_EQ(without.Int(AttrKey::kDoRotary), 0);
  EXPECT_EQ(without.inputs.at(kGqaCos), kNoValue);
}

TEST(FuseRope, LeavesDifferentRotationsAlone) {
  Graph g = BuildDecoder(Small(), {16}).Take();
  for (Node& n : g.nodes)
    if (n.name == "layers.1.k_rope")
      for (Attr& a : n.attrs)
        if (a.key == AttrKey::kInterleaved) a.value = int64_t{1};
  EXPECT_EQ(FuseRope(g), 1);
  EXPECT_EQ(CountOf(g, Op::kRotary), 2);
}

TEST(EliminateDeadNodes, DropsWhatTheLogitsDoNotNeed) {
  Graph g = BuildDecoder(Small(), {16}).Take();
  EXPECT_EQ(EliminateDeadNodes(g), 0);
  const std::string before = Dump(g);
  const ValueId dead = g.AddValue({"dead", {}, ElementType::kF32, nullptr}),
                deader = g.AddValue({"deader", {}, ElementType::kF32, nullptr});
  g.nodes.push_back({Op::kTanh, "dead", {g.output_logits}, {dead}, {}, -1});
  g.nodes.push_back({Op::kTanh, "deader", {dead}, {deader}, {}, -1});
  ASSERT_TRUE(InferShapes(g).ok());
  EXPECT_EQ(EliminateDeadNodes(g), 4);  // two nodes, two values
  EXPECT_EQ(Dump(g), before);
}

TEST(RunPasses, ReportsAllInOrderAndObeysTheSwitches) {
  std::vector<std::string> ran, skipped;
  Graph g = BuildDecoder(Small(), {16}).Take();
  const std::string plain = Dump(g);
  const std::vector<std::string> off = {"fuse_qkv", "fuse_rope"};
  ASSERT_TRUE(RunPasses(g, off, [&](const PassReport& r, const Graph&) {
                (r.state == PassReport::State::kRan ? ran : skipped).push_back(r.name);
                EXPECT_GE(r.ns, 0);
              }).ok());
  EXPECT_EQ(ran, (std::vector<std::string>{"fold_constants", "fuse_gate_up", "fuse_skip_rmsnorm", "eliminate_dead_nodes"}));
  EXPECT_EQ(skipped, off);
  EXPECT_EQ(CountOf(g, Op::kRotary), 4);

  Graph untouched = BuildDecoder(Small(), {16}).Take();
  ASSERT_TRUE(RunPasses(untouched, std::vector<std::string>{"all"}).ok());
  EXPECT_EQ(Dump(untouched), plain);

  const Status s = RunPasses(g, std::vector<std::string>{"fuse_qvk"});
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code(), Code::kInvalidArgument);
  EXPECT_NE(s.error().hint().find("fuse_qkv"), std::string::npos);
}

// Goldens: the graph before a pass (after all earlier ones) and after it.
struct Golden {
  const char* pass;
  const char* model;
};
class PassGolden : public ::testing::TestWithParam<Golden> {};

void Compare(const std::string& file, const std::string& text) {
  const std::string path = std::string(SLM_SOURCE_DIR) + "/tests/golden/passes/" + file;
  if (const char* bless = std::getenv("SLM_BLESS"); bless && std::string(bless) == "1") {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << path << " is missing: write it with SLM_BLESS=1 and read the difference";
  std::stringstream want;
  want << in.rdbuf();
  EXPECT_EQ(text, want.str()) << path << "; when the change is meant, write it with SLM_BLESS=1";
}

TEST_P(PassGolden, BeforeAndAfter) {
  Graph g = BuildOrDie(TinyCaseNamed(GetParam().model));
  for (const Pass& pass : AllPasses()) {
    const bool is_it = std::string(pass.name) == GetParam().pass;
    if (is_it) Compare(std::string(pass.name) + ".before.graph", Dump(g));
    EXPECT_TRUE(pass.run(g) > 0 || !is_it);
    if (is_it) return Compare(std::string(pass.name) + ".after.graph", Dump(g));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PassGolden,
                         ::testing::Values(Golden{"fold_constants", "gemma3"}, Golden{"fuse_qkv", "qwen2"}, Golden{"fuse_gate_up", "llama"},
                                           Golden{"fuse_skip_rmsnorm", "mistral"}, Golden{"fuse_rope", "phi3_short"},
                                           Golden{"eliminate_dead_nodes", "gemma3"}),
                         [](const auto& i) { return i.param.pass; });

}  // namespace
}  // namespace slm::graph
