// Names of a model against each other: every value is made once and before it is read, functions do not call themselves.
#pragma once
#include "base/result.h"
#include "onnx/onnx.h"

namespace slm::onnx {

// Errors: kCorrupt with the node named.
Status CheckNames(const Model& model);

}  // namespace slm::onnx
