// Check on the graphs of tests/tiny/targets: shapes against ONNX's own inference, patterns that the graphs are made of, copies, memory.
// Verdicts of real compilers are compared in tests/e2e/check_test.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "targets/flat.h"
#include "targets/targets.h"

namespace slm::targets {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFolder = std::string(SLM_SOURCE_DIR) + "/tests/tiny/targets/";

onnx::Model Read(const std::string& name) {
  auto m = onnx::ReadModel(kFolder + "graphs/" + name + ".onnx");
  EXPECT_TRUE(m.ok()) << (m.ok() ? "" : m.error().message());
  return m.Take();
}
Target Named(const std::string& name) { return FindTarget(name).Take(); }
Report CheckOf(const std::string& graph, const std::string& target, const CheckOptions& options = {}) {
  const onnx::Model m = Read(graph);
  auto r = Check(m, Named(target), options);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message());
  return r.Take();
}
const OpFinding* Find(const Report& r, const std::string& op) {
  for (const OpFinding& f : r.ops)
    if (f.op == op) return &f;
  return nullptr;
}
// "what form" of each fusion, sorted.
std::multiset<std::string> Forms(const Report& r) {
  static constexpr const char* kNames[] = {"operator", "inside", "decomposed"};
  std::multiset<std::string> out;
  for (const Fusion& f : r.fusions) out.insert(f.what + " " + kNames[static_cast<size_t>(f.form)]);
  return out;
}

TEST(Shapes, AgreeWithOnnx) {
  std::ifstream file(kFolder + "shapes.json");
  const auto all = nlohmann::json::parse(file);
  int compared = 0;
  for (const auto& [graph, values] : all.items()) {
    const onnx::Model m = Read(graph);
    const auto flat = Flatten(m, {});
    ASSERT_TRUE(flat.ok());
    for (const auto& [name, dims] : values.items()) {
      const Value* v = flat.value().Find(name);
      ASSERT_TRUE(v) << graph << " " << name;
      if (!v->has_shape) continue;
      ASSERT_EQ(v->shape.size(), dims.size()) << graph << " " << name;
      for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i].is_number()) EXPECT_EQ(v->shape[i].value, dims[i].get<int64_t>()) << graph << " " << name;
        else EXPECT_EQ(v->shape[i].value, -1) << graph << " " << name;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 260);
}

TEST(Fusions, OperatorsAndPiecesAreTold) {
  EXPECT_THAT(Forms(CheckOf("block_float", "qnn-htp-v73")), ElementsAre("RMSNorm operator", "RMSNorm operator", "RoPE decomposed",
                                                                        "RoPE decomposed", "attention decomposed", "softmax operator"));
  EXPECT_THAT(Forms(CheckOf("block_in_pieces", "qnn-htp-v73")), ElementsAre("RMSNorm decomposed", "RMSNorm decomposed", "RoPE decomposed",
                                                                            "RoPE decomposed", "attention decomposed", "softmax operator"));
  EXPECT_THAT(Forms(CheckOf("grouped_query", "cpu-x86")), ElementsAre("RoPE inside", "attention operator", "softmax inside"));
  EXPECT_THAT(Forms(CheckOf("standard_attention", "cpu-x86")),
              ElementsAre("RMSNorm operator", "RoPE operator", "RoPE operator", "attention operator", "attention operator",
                          "softmax inside", "softmax inside"));
  EXPECT_THAT(Forms(CheckOf("quantized_attention", "qnn-htp-v73")), ElementsAre("attention decomposed", "softmax operator"));
  EXPECT_THAT(Forms(CheckOf("gelu_in_pieces", "cpu-x86")), ElementsAre("GELU decomposed"));
}

TEST(Fusions, PiecesAreNamedByTheirNodes) {
  const Report r = CheckOf("block_in_pieces", "qnn-htp-v73");
  const auto norm = std::find_if(r.fusions.begin(), r.fusions.end(), [](const Fusion& f) { return f.what == "RMSNorm"; });
  ASSERT_NE(norm, r.fusions.end());
  EXPECT_THAT(norm->nodes, ElementsAre("mul_1", "reducemean_1", "add_1", "sqrt_1", "reciprocal_1", "mul_2", "mul_3"));
  EXPECT_FALSE(norm->one_kernel);
  EXPECT_THAT(norm->note, HasSubstr("kernel for RMSNormalization"));
  const auto rope = std::find_if(r.fusions.begin(), r.fusions.end(), [](const Fusion& f) { return f.what == "RoPE"; });
  EXPECT_THAT(rope->nodes, testing::UnorderedElementsAre("slice_1", "slice_2", "neg_1", "concat_1", "mul_4", "mul_5", "add_2"));
}

TEST(Fusions, WhatACompilerTakesWholeIsNative) {
  const Report r = CheckOf("gelu_in_pieces", "qnn-htp-v73");
  EXPECT_EQ(r.n_native, 8);
  ASSERT_EQ(r.fusions.size(), 1u);
  EXPECT_TRUE(r.fusions[0].one_kernel);
  EXPECT_EQ(CheckOf("gelu_in_pieces", "openvino-npu-4000").fusions[0].one_kernel, false);
}

TEST(Shapes, OpenDimensionsAreFixedByOption) {
  const Report open = CheckOf("open_length", "qnn-htp-v73");
  EXPECT_EQ(open.n_native, 0);
  EXPECT_EQ(open.n_fallback, 8);
  EXPECT_THAT(open.open_dims, ElementsAre("tokens"));
  const Report fixed = CheckOf("open_length", "qnn-htp-v73", {.dims = {{"tokens", 4}}});
  EXPECT_EQ(fixed.n_native, 8);
  EXPECT_TRUE(fixed.open_dims.empty());
  EXPECT_EQ(CheckOf("open_length", "cpu-x86").n_native, 8);
  EXPECT_THAT(CheckOf("open_length", "qnn-htp-v73", {.dims = {{"words", 4}}}).unknown_dims, ElementsAre("words"));
}

TEST(Verdicts, FallBackOnlyWhereTheOtherDeviceTakesIt) {
  const Report npu = CheckOf("skip_norm", "qnn-htp-v73");
  EXPECT_EQ(Find(npu, "SkipSimplifiedLayerNormalization")->verdict, Verdict::kFallback);
  EXPECT_EQ(npu.n_blocked, 0);
  EXPECT_FALSE(npu.blocked());
  onnx::Model m = Read("skip_norm");
  for (onnx::Node& n : m.graph.nodes)
    if (n.op_type == "SkipSimplifiedLayerNormalization") n.op_type = "NobodyKnowsIt";
  const Report unknown = Check(m, Named("qnn-htp-v73"), {}).Take();
  EXPECT_EQ(Find(unknown, "NobodyKnowsIt")->verdict, Verdict::kBlocked);
  EXPECT_TRUE(unknown.blocked());
  // Without a fallback in the description a refusal blocks.
  EXPECT_EQ(Find(CheckOf("cache_in_place", "openvino-npu-4000"), "TensorScatter")->verdict, Verdict::kBlocked);
}

TEST(Verdicts, NodesOfConstantsAreFolded) {
  onnx::Model m = Read("block_float");
  onnx::Node shape;
  shape.op_type = "Shape";
  shape.name = "added";
  shape.inputs = {"x"};
  shape.outputs = {"x.shape"};
  m.graph.nodes.insert(m.graph.nodes.begin(), shape);
  const Report r = Check(m, Named("qnn-htp-v73"), {}).Take();
  EXPECT_EQ(r.n_folded, 1);
  EXPECT_EQ(Find(r, "Shape")->verdict, Verdict::kFolded);
}

TEST(Copies, AreCountedWithTheirBytes) {
  const Report r = CheckOf("quantized_cache", "qnn-htp-v73");
  std::map<std::string, std::pair<int64_t, int64_t>> found;
  for (const Copy& c : r.copies) found[c.what] = {c.count, c.bytes};
  // keys [1, 2, 8, 8]: 128 values of f32 before they are quantized, 64 of them new and requantized as int16.
  EXPECT_EQ(found["KV concatenation"], (std::pair<int64_t, int64_t>{1, 512}));
  EXPECT_EQ(found["requantize"], (std::pair<int64_t, int64_t>{1, 128}));
  const Report border = CheckOf("quantized_mlp_float_border", "qnn-htp-v73");
  int at_border = 0;
  for (const Copy& c : border.copies) at_border += c.what.find("border") != std::string::npos;
  EXPECT_EQ(at_border, 2);
  EXPECT_EQ(border.n_fallback, 2);
}

TEST(Memory, WeightsAreToldByTheirForm) {
  const auto forms = [](const Report& r) {
    std::map<std::string, int64_t> out;
    for (const StoredAs& s : r.weights) out[s.scheme] = s.count;
    return out;
  };
  EXPECT_THAT(forms(CheckOf("quantized_mlp", "qnn-htp-v73")), ElementsAre(std::pair("int8, one scale a channel", 3)));
  EXPECT_THAT(forms(CheckOf("quantized_embedding", "webgpu")), ElementsAre(std::pair("4 bits in blocks of 32 (GatherBlockQuantized)", 1),
                                                                           std::pair("4 bits in blocks of 32 (MatMulNBits)", 1)));
  EXPECT_THAT(forms(CheckOf("block_float", "webgpu")), ElementsAre(std::pair("float", 7)));
  EXPECT_FALSE(CheckOf("block_float", "webgpu").target_weights.empty());
}

TEST(Memory, WeightsCacheAndBounds) {
  // grouped_query: four products of 16 x 16 and two tables of 16 x 4, f32; two caches of [1, 2, 8, 8] f32.
  const Report r = CheckOf("grouped_query", "webgpu");
  EXPECT_EQ(r.weights_bytes, 4 * 16 * 16 * 4 + 2 * 16 * 4 * 4);
  EXPECT_EQ(r.kv_bytes, 2 * 2 * 8 * 8 * 4);
  const auto small = ParseTarget(R"({"schema": 1, "name": "small", "extends": "cpu-x86", "sources": {"m": {"assumed": "a test"}},
                                     "limits": [{"what": "weights_and_kv_bytes", "most": 4000, "source": "m"}]})",
                                 "file");
  ASSERT_TRUE(small.ok()) << small.error().message();
  const onnx::Model m = Read("grouped_query");
  const Report tight = Check(m, small.value(), {}).Take();
  ASSERT_EQ(tight.bounds.size(), 1u);
  EXPECT_EQ(tight.bounds[0].is, r.weights_bytes + r.kv_bytes);
  EXPECT_TRUE(tight.blocked());
}

TEST(Functions, AreCheckedByTheirBodies) {
  onnx::Model m = Read("causal_mask");
  onnx::Function f;
  f.domain = "mine";
  f.name = "Gate";
  f.inputs = {"a"};
  f.outputs = {"b"};
  f.opsets = {{"", 23}};
  onnx::Node erf;
  erf.op_type = "Erf";
  erf.inputs = {"a"};
  erf.outputs = {"b"};
  f.nodes = {erf};
  m.functions.push_back(f);
  m.opsets.push_back({"mine", 1});
  onnx::Node call;
  call.domain = "mine";
  call.op_type = "Gate";
  call.name = "call";
  call.inputs = {"scores"};
  call.outputs = {"gated"};
  m.graph.nodes.push_back(call);
  const Report r = Check(m, Named("qnn-htp-v73"), {}).Take();
  ASSERT_TRUE(Find(r, "Erf"));
  EXPECT_THAT(Find(r, "Erf")->nodes, ElementsAre(HasSubstr("call/")));
  EXPECT_FALSE(Find(r, "Gate"));
}

TEST(Rows, ReadersDecide) {
  const auto target = ParseTarget(
      R"({"schema": 1, "name": "t", "sources": {"me": {"assumed": "a test"}}, 
      "unlisted": {"reason": "no row", "source": "me"}, "operators": [
      {"op": "DequantizeLinear", "read_by": ["Gather", "Relu"], "native": false, "reason": "not there", "source": "me"},
      {"op": ["DequantizeLinear", "Gather", "Relu", "Neg"], "source": "me"}]})",
      "t");
  ASSERT_TRUE(target.ok()) << target.error().message();
  for (const auto& [reader, verdict] : {std::pair{"Relu", Verdict::kBlocked}, std::pair{"Neg", Verdict::kNative}}) {
    onnx::Model m;
    m.opsets = {{"", 21}};
    m.graph.inputs.emplace_back();
    m.graph.inputs[0].name = "x";
    m.graph.nodes.resize(2);
    m.graph.nodes[0].op_type = "DequantizeLinear", m.graph.nodes[0].inputs = {"x"}, m.graph.nodes[0].outputs = {"y"};
    m.graph.nodes[1].op_type = reader, m.graph.nodes[1].inputs = {"y"}, m.graph.nodes[1].outputs = {"z"};
    const auto r = Check(m, target.value(), {});
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(Find(r.value(), "DequantizeLinear")->verdict, verdict) << reader;
  }
}

}  // namespace
}  // namespace slm::targets
