// Encodings by hand, the order of heads, and Q and DQ around a small graph.
#include "exporter/qdq/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "exporter/onnx_parts.h"

namespace slm::exporter {
namespace {
using model::CodedMatrix;
using model::ValueRange;

TEST(Encoding, UnsignedCoversTheRangeAndZero) {
  const Encoding e = UnsignedEncoding({-1, 3});
  EXPECT_FLOAT_EQ(e.scale, 4.0f / 65535);
  EXPECT_EQ(e.zero, 16384);  // 65535 / 4 is 16383.75
  EXPECT_EQ(Encode(e, 0), 16384);
  EXPECT_EQ(Encode(e, 3), 65535);
  EXPECT_EQ(Encode(e, -5), 0);
  EXPECT_EQ(Encode(e, 9), 65535);
  EXPECT_EQ(UnsignedEncoding({2, 4}).zero, 0);  // 0 is always on the grid
  EXPECT_FLOAT_EQ(UnsignedEncoding({2, 4}).scale, 4.0f / 65535);
  EXPECT_EQ(UnsignedEncoding({-4, -2}).zero, 65535);
  EXPECT_GT(UnsignedEncoding({0, 0}).scale, 0);
}

TEST(Encoding, SignedHasItsZeroInTheMiddle) {
  const Encoding e = SignedEncoding({-1, 3});
  EXPECT_FLOAT_EQ(e.scale, 3.0f / 32767);
  EXPECT_EQ(e.zero, 0);
  EXPECT_EQ(Encode(e, 3), 32767);
  EXPECT_EQ(Encode(e, -1), -10922);
  EXPECT_EQ(Encode(e, -9), -32768);
}

// Two heads of 6, of which 4 turn: neighbours (0 1)(2 3) become halves (0 2 | 1 3).
TEST(HeadOrder, NeighboursBecomeHalves) {
  const HeadOrder order{.heads = 2, .head_dim = 6, .rotary_dim = 4};
  const std::vector<float> rows = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(Reordered(rows, 1, order), (std::vector<float>{0, 2, 1, 3, 4, 5, 10, 12, 11, 13, 14, 15}));
  EXPECT_EQ(Reordered(rows, 1, {}), rows);
}

// out = sigmoid(x) + x[moved]: one value of each kind of range.
StaticGraph Small() {
  StaticGraph s;
  onnx::ValueInfo x;
  x.name = "x";
  s.graph.inputs = {x};
  s.graph.nodes.resize(3);
  const auto set = [&](size_t i, const char* op, std::vector<std::string> in, const char* out) {
    s.graph.nodes[i].op_type = op, s.graph.nodes[i].inputs = std::move(in), s.graph.nodes[i].outputs = {out};
  };
  set(0, "Sigmoid", {"x"}, "gate");
  set(1, "Transpose", {"x"}, "moved");
  set(2, "Add", {"gate", "moved"}, "out");
  return s;
}

float ScaleOf(const onnx::Graph& g, const std::string& value) {
  const auto t =
      std::find_if(g.initializers.begin(), g.initializers.end(), [&](const onnx::Tensor& i) { return i.name == value + ".scale"; });
  float scale = -1;
  if (t != g.initializers.end()) std::memcpy(&scale, t->data.data(), 4);
  return scale;
}

TEST(QuantizeGraph, RangesFollowFromOperatorsOrAreGiven) {
  const StaticGraph s = Small();
  graph::Graph none;
  MatrixStore store(none);
  const std::map<const model::Tensor*, CodedMatrix> matrices;
  std::map<std::string, ValueRange> given;
  KnownRanges known{.ranges = &given, .inputs = {{"x", {-2, 6}}}, .margin = 1.5f};
  const QuantizedGraph follows = QuantizeGraph(s, known, store, matrices).Take();
  EXPECT_FLOAT_EQ(ScaleOf(follows.graph, "x"), 8.0f / 65535);  // of an input: exact
  EXPECT_FLOAT_EQ(ScaleOf(follows.graph, "gate"), 1.0f / 65535);
  EXPECT_EQ(ScaleOf(follows.graph, "moved"), -1);  // keeps the encoding of x
  EXPECT_FLOAT_EQ(ScaleOf(follows.graph, "out"), 9.0f / 65535);
  EXPECT_EQ(follows.graph.nodes.size(), 1u + 3u * 3u);
  given["out"] = {-1, 2};
  EXPECT_FLOAT_EQ(ScaleOf(QuantizeGraph(s, known, store, matrices).Take().graph, "out"), 4.5f / 65535);
  known.inputs.clear();
  EXPECT_EQ(QuantizeGraph(s, known, store, matrices).error().code(), Code::kInvalidArgument);
}

TEST(QuantizeGraph, AnUnknownRangeIsAnError) {
  StaticGraph s = Small();
  s.graph.nodes[0].op_type = "Gelu";
  graph::Graph none;
  MatrixStore store(none);
  const std::map<std::string, ValueRange> given;
  const auto r = QuantizeGraph(s, {.ranges = &given, .inputs = {{"x", {-2, 6}}}, .margin = 1}, store, {});
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message().find("gate"), std::string::npos);
}

}  // namespace
}  // namespace slm::exporter
