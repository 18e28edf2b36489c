// The description of a graph's value that is a tensor.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "onnx/onnx.h"

namespace slm::onnx {

// A tensor of this element type and shape; a rank of 0 is a scalar. Pure. (onnx.proto: ValueInfoProto, TypeProto.Tensor)
inline ValueInfo TensorInfo(const std::string& name, ElementType type, std::vector<Dim> shape) {
  ValueInfo v;
  v.name = name;
  v.type.kind = ValueType::Kind::kTensor;
  v.type.element = type;
  v.type.has_shape = true;
  v.type.shape = std::move(shape);
  return v;
}

}  // namespace slm::onnx
