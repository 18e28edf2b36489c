// Calls of a file's functions as the nodes of the function.
#include "importer/flatten.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace slm::importer {
namespace {

onnx::Node Named(const std::string& op, std::vector<std::string> in, std::vector<std::string> out, const std::string& domain = "") {
  onnx::Node n;
  n.op_type = op, n.domain = domain;
  n.inputs = std::move(in), n.outputs = std::move(out);
  return n;
}

onnx::Function Own(const std::string& name, std::vector<std::string> in, std::vector<std::string> out, std::vector<onnx::Node> nodes) {
  onnx::Function f;
  f.domain = "own", f.name = name;
  f.inputs = std::move(in), f.outputs = std::move(out);
  f.nodes = std::move(nodes);
  f.opsets = {{"", 21}, {"own", 1}};
  return f;
}

onnx::Model Calling(std::vector<onnx::Function> functions, std::vector<onnx::Node> nodes) {
  onnx::Model m;
  m.opsets = {{"", 21}, {"own", 1}};
  m.functions = std::move(functions);
  m.graph.nodes = std::move(nodes);
  return m;
}

std::vector<std::string> Lines(const onnx::Model& m) {
  std::vector<std::string> out;
  for (const onnx::Node& n : m.graph.nodes) {
    std::string line;
    for (const std::string& name : n.outputs) line += name + " ";
    line += "= " + n.op_type;
    for (const std::string& name : n.inputs) line += " " + name;
    out.push_back(line);
  }
  return out;
}

TEST(Flatten, NamesOfAFunctionAreItsCallers) {
  // f(x, y) = (abs(neg x), x), called twice, once without its second input and output.
  const auto f = Own("f", {"x", "y"}, {"b", "x"}, {Named("Neg", {"x"}, {"a"}), Named("Sum", {"a", "y"}, {"b"})});
  const auto flat = Flatten(std::make_shared<onnx::Model>(
      Calling({f}, {Named("f", {"a", "q"}, {"r", "s"}, "own"), Named("f", {"r"}, {"t"}, "own"), Named("Neg", {"t"}, {"b"})})));
  ASSERT_TRUE(flat.ok()) << flat.error().message();
  EXPECT_EQ(Lines(*flat.value()),
            (std::vector<std::string>{"f/a = Neg a", "r = Sum f/a q", "s = Identity a", "f/a#2 = Neg r", "t = Sum f/a#2 ", "b = Neg t"}));
}

TEST(Flatten, FunctionsInFunctionsAreBounded) {
  // Each calls the one before ten times: 10^30 nodes, or as many calls of one that has none.
  for (const bool empty : {false, true}) {
    std::vector<onnx::Function> functions;
    for (int i = 0; i <= 30; ++i) {
      std::vector<onnx::Node> nodes;
      for (int k = 0; k < (i > 0 ? 10 : empty ? 0 : 1); ++k)
        nodes.push_back(i > 0 ? Named("f" + std::to_string(i - 1), {"x"}, {"y" + std::to_string(k)}, "own") : Named("Neg", {"x"}, {"y0"}));
      functions.push_back(Own("f" + std::to_string(i), {"x"}, {i > 0 || !empty ? "y0" : "x"}, nodes));
    }
    const auto flat = Flatten(std::make_shared<onnx::Model>(Calling(functions, {Named("f30", {"x"}, {"y"}, "own")})));
    ASSERT_FALSE(flat.ok());
    EXPECT_EQ(flat.error().code(), Code::kLimit);
  }
  auto old = Own("f", {"x"}, {"y"}, {Named("Neg", {"x"}, {"y"})});
  old.opsets[0].version = 12;
  const auto refused = Flatten(std::make_shared<onnx::Model>(Calling({old}, {Named("f", {"x"}, {"y"}, "own")})));
  ASSERT_FALSE(refused.ok());
  for (const char* says : {"\"f\"", "12", "21"}) EXPECT_NE(refused.error().message().find(says), std::string::npos) << says;
}

// An If whose branches are Ifs of the same kind, and so on; the innermost hold a Neg of "x".
onnx::Node NestedIf(int depth) {
  if (depth == 0) return Named("Neg", {"x"}, {"y"});
  onnx::Node n = Named("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    onnx::Graph g;
    g.nodes.push_back(NestedIf(depth - 1));
    g.outputs.push_back({"y", {}});
    onnx::Attribute a;
    a.name = name, a.kind = onnx::Attribute::Kind::kGraph, a.graphs.push_back(std::move(g));
    n.attributes.push_back(std::move(a));
  }
  return n;
}

TEST(Flatten, BranchesInBranchesHaveNamesOfTheirOwn) {
  const auto flat = Flatten(std::make_shared<onnx::Model>(Calling({}, {NestedIf(11)})));
  ASSERT_TRUE(flat.ok()) << flat.error().message();
  std::set<std::string> made;
  size_t n_neg = 0;
  const std::function<void(const onnx::Graph&)> look = [&](const onnx::Graph& g) {
    for (const onnx::Node& n : g.nodes) {
      EXPECT_TRUE(made.insert(n.outputs[0]).second) << n.outputs[0];
      n_neg += n.op_type == "Neg" ? 1 : 0;
      EXPECT_EQ(n.attributes.size(), n.op_type == "Neg" ? 0u : 2u);
      for (const onnx::Attribute& a : n.attributes)
        for (const onnx::Graph& inner : a.graphs) {
          EXPECT_EQ(inner.outputs[0].name, inner.nodes[0].outputs[0]);
          look(inner);
        }
    }
  };
  look(flat.value()->graph);
  EXPECT_EQ(n_neg, 2048u);  // 2^11
  EXPECT_EQ(made.size(), 4095u);
}

}  // namespace
}  // namespace slm::importer
