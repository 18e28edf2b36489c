// A static float graph with a QuantizeLinear and a DequantizeLinear on every activation. Not a door.
#pragma once
#include "exporter/qdq/matrix_store.h"
#include "exporter/qdq/static_graph.h"

namespace slm::exporter {

// How an integer stands for a number: scale * (q - zero).
struct Encoding {
  float scale = 1;
  int32_t zero = 0;
  onnx::ElementType type = onnx::ElementType::kUint16;
};
// All of `range` and 0, which lies on the grid: unsigned from 0 to 65535, or signed with zero point 0. Pure.
Encoding UnsignedEncoding(model::ValueRange range);
Encoding SignedEncoding(model::ValueRange range);
// The nearest integer, cut to the type. Pure.
int32_t Encode(const Encoding& e, float v);

// What queries may not see gets this much less than the least score, so that its weight is nothing: e^-25 is below a step of 16 bits.
inline constexpr float kMaskMargin = 25;

// Ranges of values that calibration gives by name, made wider by `margin`, and of inputs.
struct KnownRanges {
  const std::map<std::string, model::ValueRange>* ranges = nullptr;
  std::map<std::string, model::ValueRange> inputs;  // exact: not widened
  float margin = 1;
};

struct QuantizedGraph {
  onnx::Graph graph;
  std::map<std::string, Encoding> inputs;  // of inputs of the graph, the cache's included
  std::shared_ptr<const void> bytes;       // of the initializers that are neither the store's nor the float graph's
};
// Errors: kInvalidArgument naming a value without a range, and those of the matrices.
Result<QuantizedGraph> QuantizeGraph(const StaticGraph& from, const KnownRanges& known, MatrixStore& store,
                                     const std::map<const model::Tensor*, model::CodedMatrix>& matrices);

}  // namespace slm::exporter
