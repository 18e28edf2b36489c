// Single calls of operators beside ONNX Runtime's values (tests/tiny/make_operators.py), and the same with an input of another shape or
// type.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/testing/array_json.h"

namespace slm::reference {
namespace {

using nlohmann::json;

const json& Cases() {
  static const json cases = [] {
    std::ifstream in(SLM_SOURCE_DIR "/tests/tiny/operators.json");
    return json::parse(in);
  }();
  return cases;
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& [name, c] : Cases().items()) names.push_back(name);
  return names;
}

onnx::Attribute AttributeOf(const std::string& name, const json& j) {
  onnx::Attribute a;
  a.name = name;
  if (j.is_string()) a.kind = onnx::Attribute::Kind::kString, a.strings = {j.get<std::string>()};
  else if (j.is_number_integer()) a.kind = onnx::Attribute::Kind::kInt, a.ints = {j.get<int64_t>()};
  else if (j.is_number()) a.kind = onnx::Attribute::Kind::kFloat, a.floats = {j.get<float>()};
  else a.kind = onnx::Attribute::Kind::kInts, a.ints = j.get<std::vector<int64_t>>();
  return a;
}

// A case as a node; an input that is left out is nullptr.
struct CallOf {
  explicit CallOf(const json& c) {
    node.op_type = c["op"];
    node.domain = c["domain"];
    for (const auto& [name, value] : c["attributes"].items()) node.attributes.push_back(AttributeOf(name, value));
    arrays.reserve(c["inputs"].size());
    for (const json& in : c["inputs"]) {
      node.inputs.push_back(in.is_null() ? "" : "i" + std::to_string(node.inputs.size()));
      if (!in.is_null()) arrays.push_back(ArrayOf(in));
      inputs.push_back(in.is_null() ? nullptr : &arrays.back());
    }
    for (size_t k = 0; k < c["outputs"].size(); ++k) node.outputs.push_back("o" + std::to_string(k));
    opsets = {{"", c["opset"].get<int64_t>()}, {"com.microsoft", 1}};
  }
  Result<std::vector<Array>> Run() const { return RunNode(node, opsets, inputs); }

  onnx::Node node;
  std::vector<Array> arrays;
  std::vector<const Array*> inputs;
  std::vector<onnx::Opset> opsets;
};

class Calls : public testing::TestWithParam<std::string> {};

TEST_P(Calls, ComputeWhatOnnxRuntimeComputes) {
  const json& c = Cases()[GetParam()];
  const auto got = CallOf(c).Run();
  ASSERT_TRUE(got.ok()) << got.error().message();
  ASSERT_EQ(got.value().size(), c["outputs"].size());
  for (size_t k = 0; k < got.value().size(); ++k) {
    if (c["outputs"][k].is_null()) continue;
    const Array want = ArrayOf(c["outputs"][k]);
    const bool half = want.type == onnx::ElementType::kFloat16, whole = want.f.empty();
    const Tolerance t = whole ? Tolerance{.relative = 0, .absolute = c["off"].get<double>()}
                              : Tolerance{.relative = half ? 2e-3 : 2e-5, .absolute = half ? 2e-3 : 5e-6};
    const Difference d = Compare(got.value()[k], want, t);
    EXPECT_FALSE(d.differs) << "output " << k << ": " << d.where << ", largest " << d.largest;
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, Calls, testing::ValuesIn(CaseNames()), [](const auto& p) { return p.param; });

// Shapes and types that nobody asks for: outputs or an error, never more.
TEST(Reference, CallsWithStrangeInputs) {
  std::vector<Array> strange;
  const auto add = [&](onnx::ElementType type, std::vector<int64_t> dims) {
    Array a;
    a.type = type, a.dims = std::move(dims);
    size_t n = 1;
    for (const int64_t d : a.dims) n *= static_cast<size_t>(d);
    if (onnx::Info(type).kind == onnx::ElementKind::kFloating) a.f.assign(n, std::nan(""));
    else a.i.assign(n, onnx::Info(type).kind == onnx::ElementKind::kSigned ? -1 : 1);
    strange.push_back(std::move(a));
  };
  for (const auto type : {onnx::ElementType::kFloat, onnx::ElementType::kInt32, onnx::ElementType::kInt64, onnx::ElementType::kUint8,
                          onnx::ElementType::kBool, onnx::ElementType::kFloat16})
    for (const std::vector<int64_t>& dims :
         {std::vector<int64_t>{}, {0}, {1}, {2, 3}, {0, 4}, {2, 3, 0}, {2, 3, 8}, {2, 2, 0, 4}, {2, 2, 2, 2, 4}})
      add(type, dims);
  size_t refused = 0;
  for (const auto& [name, c] : Cases().items()) {
    CallOf call(c);
    for (const Array*& input : call.inputs)
      for (const Array& other : strange) {
        const Array* own = std::exchange(input, &other);
        refused += call.Run().ok() ? 0 : 1;
        input = own;
      }
    for (onnx::Attribute& a : call.node.attributes)
      for (const int64_t value : {int64_t{-1}, int64_t{0}, int64_t{7}, int64_t{1} << 40, std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max()}) {
        const auto own = a.ints;
        for (int64_t& v : a.ints) v = value;
        refused += call.Run().ok() ? 0 : 1;
        a.ints = own;
      }
  }
  EXPECT_GT(refused, 5000u);
}

// A Loop over a body that gives back its condition and a slice.
onnx::Model LoopOf(std::vector<std::string> inputs) {
  onnx::Graph body;
  for (const char* name : {"round", "goes"}) body.inputs.emplace_back().name = name;
  body.outputs.emplace_back().name = "goes";
  onnx::ValueInfo& slice = body.outputs.emplace_back();
  slice.name = "round";
  slice.type = {
      .kind = onnx::ValueType::Kind::kTensor, .element = onnx::ElementType::kInt64, .has_shape = true, .shape = {{2, ""}}, .inner = {}};
  onnx::Node n;
  n.op_type = "Loop", n.inputs = std::move(inputs), n.outputs = {"y"};
  onnx::Attribute& a = n.attributes.emplace_back();
  a.name = "body", a.kind = onnx::Attribute::Kind::kGraph, a.graphs = {std::move(body)};
  onnx::Model m;
  m.opsets = {{"", 21}};
  m.graph.nodes = {std::move(n)};
  m.graph.inputs.emplace_back().name = "most";
  m.graph.outputs.emplace_back().name = "y";
  return m;
}

TEST(Reference, LoopsEnd) {
  Array most;
  most.type = onnx::ElementType::kInt64;
  most.i = {3};
  const auto three = RunGraph(LoopOf({"most", ""}), {most});
  ASSERT_TRUE(three.ok()) << three.error().message();
  EXPECT_EQ(three.value()[0].i, (std::vector<int64_t>{0, 1, 2}));
  most.i = {0};
  const auto none = RunGraph(LoopOf({"most", ""}), {most});
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_EQ(none.value()[0].dims, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(RunGraph(LoopOf({"", ""}), {most}).error().code(), Code::kLimit);
}

}  // namespace
}  // namespace slm::reference
