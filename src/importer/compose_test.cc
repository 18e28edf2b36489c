// Stages as one graph: whose names are whose, and what stages cannot be.
#include "importer/compose.h"

#include <gtest/gtest.h>

#include "importer/decoder.h"

namespace slm::importer {
namespace {

using Names = std::vector<std::string>;

onnx::Node Named(const std::string& op, Names in, Names out) {
  onnx::Node n;
  n.op_type = op;
  n.inputs = std::move(in), n.outputs = std::move(out);
  return n;
}

// A stage whose graph takes and gives what it says, by these nodes.
StageGraph Stage(const std::string& name, Names inputs, Names outputs, std::vector<onnx::Node> nodes) {
  StageGraph s;
  s.model = std::make_shared<onnx::Model>();
  s.model->opsets = {{"", 21}};
  for (const std::string& v : inputs) s.model->graph.inputs.push_back({v, {}});
  for (const std::string& v : outputs) s.model->graph.outputs.push_back({v, {}});
  s.model->graph.nodes = std::move(nodes);
  s.stage.name = name, s.stage.file = name + ".onnx";
  s.stage.inputs = std::move(inputs), s.stage.outputs = std::move(outputs);
  return s;
}

Names Lines(const onnx::Model& m) {
  Names out;
  for (const onnx::Node& n : m.graph.nodes) out.push_back(n.outputs[0] + " = " + n.op_type + " " + n.inputs[0]);
  return out;
}

std::string Message(const std::vector<StageGraph>& stages) {
  const auto c = Compose(stages, {});
  return c.ok() ? "" : c.error().message();
}
void ExpectRefusal(const std::vector<StageGraph>& stages, const Names& parts) {
  const std::string message = Message(stages);
  EXPECT_NE(message, "");
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

// Both stages have an "x" and a "y"; the second finds the first one's "y" under another name.
std::vector<StageGraph> Two() {
  StageGraph a = Stage("a", {"input_ids"}, {"y"}, {Named("Neg", {"input_ids"}, {"x"}), Named("Abs", {"x"}, {"y"})});
  a.stage.forwarded["y"] = "x";
  return {a, Stage("b", {"x"}, {"logits"}, {Named("Neg", {"x"}, {"y"}), Named("Abs", {"y"}, {"logits"})})};
}

TEST(Compose, NamesOfAStageAreItsOwn) {
  const auto c = Compose(Two(), {});
  ASSERT_TRUE(c.ok()) << c.error().message();
  EXPECT_EQ(Lines(*c.value().model), (Names{"a/input_ids = Identity input_ids", "a/x = Neg a/input_ids", "a/y = Abs a/x",
                                            "b/x = Identity a/y", "b/y = Neg b/x", "b/logits = Abs b/y", "logits = Identity b/logits"}));
  ASSERT_EQ(c.value().model->graph.inputs.size(), 1u);
  ASSERT_EQ(c.value().model->graph.outputs.size(), 1u);
  EXPECT_EQ(c.value().form, CallForm::kAnyLength);
}

TEST(Compose, NamesInBranchesMoveWithTheStage) {
  auto stages = Two();
  onnx::Graph then;
  then.nodes = {Named("Neg", {"x"}, {"t"})};
  then.outputs = {{"t", {}}};
  onnx::Attribute branch;
  branch.name = "then_branch";
  branch.kind = onnx::Attribute::Kind::kGraph;
  branch.graphs = {then};
  onnx::Node node = Named("If", {"x"}, {"chosen"});
  node.attributes = {branch};
  stages[1].model->graph.nodes.push_back(node);
  const auto c = Compose(stages, {});
  ASSERT_TRUE(c.ok()) << c.error().message();
  for (const onnx::Node& n : c.value().model->graph.nodes)
    if (n.op_type == "If") {
      EXPECT_EQ(n.attributes[0].graphs[0].nodes[0].inputs[0], "b/x");
    }
}

TEST(Compose, StagesThatDoNotFitAreRefused) {
  auto stages = Two();
  stages[0].stage.forwarded.clear();
  ExpectRefusal(stages, {"stage \"b\" (b.onnx)", "\"x\" is made by no stage"});
  std::swap(stages[0], stages[1]);
  stages[0].stage.inputs = {"y"}, stages[0].model->graph.inputs[0].name = "y";
  stages[0].model->graph.nodes = {Named("Abs", {"y"}, {"logits"})};
  ExpectRefusal(stages, {"stage \"b\"", "\"y\" is made by stage \"a\"", "a cycle"});
  ExpectRefusal({Stage("a", {"h"}, {"g"}, {Named("Neg", {"h"}, {"g"})}), Stage("b", {"g"}, {"h"}, {Named("Neg", {"g"}, {"h"})})},
                {"stage \"a\"", "made by stage \"b\"", "a cycle"});
  ExpectRefusal({Stage("a", {"h"}, {"h"}, {})}, {"stage \"a\"", "a cycle"});
  stages = Two();
  stages[1].stage.inputs.push_back("other");
  ExpectRefusal(stages, {"stage \"b\"", "no input \"other\""});
  stages = Two();
  stages[1].stage.outputs.push_back("other");
  ExpectRefusal(stages, {"stage \"b\"", "no output \"other\""});
  stages = Two();
  stages[1].model->graph.inputs.push_back({"other", {}});
  ExpectRefusal(stages, {"stage \"b\"", "\"other\" is not among the stage's"});
  stages = Two();
  stages[1].stage.file = stages[0].stage.file;
  ExpectRefusal(stages, {"two stages run the file \"a.onnx\""});
  stages = Two();
  stages.push_back(Stage("c", {"input_ids"}, {"logits"}, {Named("Neg", {"input_ids"}, {"logits"})}));
  ExpectRefusal(stages, {"stage \"c\"", "\"logits\" is made by an earlier stage"});
  stages = Two();
  stages[1].model->opsets[0].version = 23;
  ExpectRefusal(stages, {"stage \"b\"", "23", "21"});
  stages[1].model->opsets = {{"", 21}, {"unused", 7}};
  EXPECT_EQ(Message(stages), "");
}

// Stage "a" with a value "b/x" and stage "a/b" with a value "x".
TEST(Compose, NamesThatMeetAreRefused) {
  auto stages = Two();
  stages[0].model->graph.nodes[0].outputs[0] = stages[0].model->graph.nodes[1].inputs[0] = "b/y";
  stages[1].stage.name = "a/b";
  ExpectRefusal(stages, {"stage \"a/b\"", "two values are called \"a/b/y\""});
}

TEST(Compose, GraphsOfADeviceAreRefused) {
  auto stages = Two();
  onnx::Node compiled = Named("EPContext", {"x"}, {"z"});
  compiled.domain = "com.microsoft", compiled.name = "htp_0";
  onnx::Attribute source;
  source.name = "source";
  source.kind = onnx::Attribute::Kind::kString;
  source.strings = {"QNN"};
  compiled.attributes = {source};
  stages[1].model->graph.nodes.push_back(compiled);
  ExpectRefusal(stages, {"stage \"b\" (b.onnx)", "htp_0", "compiled by \"QNN\" for a device"});
}

// How many tokens a graph is for, its inputs say where it has a cache.
TEST(Compose, FixedShapesAreOfOneToken) {
  const auto with = [](int64_t tokens) {
    auto stages = Two();
    StageGraph& b = stages[1];
    b.model->graph.inputs[0].type.shape = {{1, ""}, {tokens, ""}, {32, ""}};
    b.model->graph.inputs.push_back({"past_key_values.0.key", {}});
    b.stage.inputs.push_back("past_key_values.0.key");
    return stages;
  };
  EXPECT_EQ(Compose(with(1), {}).Take().form, CallForm::kOneToken);
  EXPECT_EQ(Compose(with(-1), {}).Take().form, CallForm::kAnyLength);
  ExpectRefusal(with(64), {"stage \"b\"", "\"x\" is for 64 tokens"});
}

}  // namespace
}  // namespace slm::importer
