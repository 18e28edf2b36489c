// Attributes of a call, names of functions and branches, by the rules of ONNX's docs/IR.md.
#include "onnx/inline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slm::onnx {
namespace {

using testing::ElementsAre;

Attribute Int(const char* name, int64_t value, const char* ref = "") {
  Attribute a;
  a.name = name, a.ref = ref, a.kind = Attribute::Kind::kInt;
  if (a.ref.empty()) a.ints = {value};
  return a;
}

TEST(Inline, AnAttributeIsTheCallsOrTheDefault) {
  Function f;
  f.attributes = {Int("slope", 1), Int("other", 2)};
  Node call;
  call.attributes = {Int("slope", 5)};
  const FunctionCall in{&f, &call};
  EXPECT_EQ(in.ValueOf(Int("alpha", 7))->ints[0], 7);
  EXPECT_EQ(in.ValueOf(Int("alpha", 0, "slope"))->ints[0], 5);
  EXPECT_EQ(in.ValueOf(Int("alpha", 0, "other"))->ints[0], 2);
  EXPECT_EQ(in.ValueOf(Int("alpha", 0, "absent")), nullptr);
  EXPECT_EQ(FunctionCall{}.ValueOf(Int("alpha", 0, "slope")), nullptr);
}

TEST(Inline, FunctionsHaveADomainAndAnOverload) {
  std::vector<Function> functions(2);
  functions[0].domain = functions[1].domain = "own";
  functions[0].name = functions[1].name = "f";
  functions[1].overload = "two";
  const FunctionIndex index(functions);
  Node n;
  n.op_type = "f";
  EXPECT_EQ(index.Of(n), nullptr);
  n.domain = "own";
  EXPECT_EQ(index.Of(n), &functions[0]);
  n.overload = "two";
  EXPECT_EQ(index.Of(n), &functions[1]);
}

TEST(Inline, ABranchStandsForItsIf) {
  Node n;
  n.op_type = "If", n.inputs = {"c"}, n.outputs = {"y", "", "z"};
  Graph g;
  g.nodes.push_back(IdentityNode("inner", "x", "a"));
  for (const char* name : {"a", "a2", "x"}) g.outputs.push_back({name, {}});
  Attribute branch;
  branch.name = "else_branch", branch.kind = Attribute::Kind::kGraph, branch.graphs = {g};
  n.attributes = {branch};
  const auto nodes = NodesOfBranch(n, Branch::kElse);
  ASSERT_TRUE(nodes.ok());
  ASSERT_EQ(nodes.value().size(), 3u);
  EXPECT_EQ(nodes.value()[0].name, "inner");
  EXPECT_THAT(nodes.value()[1].inputs, ElementsAre("a"));
  EXPECT_THAT(nodes.value()[1].outputs, ElementsAre("y"));
  EXPECT_THAT(nodes.value()[2].inputs, ElementsAre("x"));
  EXPECT_THAT(nodes.value()[2].outputs, ElementsAre("z"));
  EXPECT_EQ(NodesOfBranch(n, Branch::kThen).error().code(), Code::kCorrupt);
  n.outputs.pop_back();
  EXPECT_EQ(NodesOfBranch(n, Branch::kElse).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace slm::onnx
