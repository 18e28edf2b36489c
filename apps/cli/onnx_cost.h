// What one token costs a decoder in an ONNX file, read off its graph.
#pragma once
#include <cstdint>

#include "onnx/onnx.h"

namespace slm::cli {

struct DecodeCost {
  int64_t weights_bytes = 0;    // each once
  int64_t bytes_per_token = 0;  // of them a decode step reads: all but tables of which it takes a row
  int64_t ops_per_token = 0;    // multiplies and adds of products with constant matrices
};
DecodeCost CostOf(const onnx::Model& model);

}  // namespace slm::cli
