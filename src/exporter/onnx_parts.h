// Attributes of ONNX nodes and values of ONNX graphs, a line each.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "onnx/onnx.h"

namespace slm::exporter {

inline onnx::Attribute Int(const char* name, int64_t v) {
  onnx::Attribute a;
  a.name = name;
  a.kind = onnx::Attribute::Kind::kInt;
  a.ints = {v};
  return a;
}
inline onnx::Attribute Ints(const char* name, std::vector<int64_t> v) {
  onnx::Attribute a;
  a.name = name;
  a.kind = onnx::Attribute::Kind::kInts;
  a.ints = std::move(v);
  return a;
}
inline onnx::Attribute Float(const char* name, float v) {
  onnx::Attribute a;
  a.name = name;
  a.kind = onnx::Attribute::Kind::kFloat;
  a.floats = {v};
  return a;
}
inline onnx::Attribute Text(const char* name, std::string v) {
  onnx::Attribute a;
  a.name = name;
  a.kind = onnx::Attribute::Kind::kString;
  a.strings = {std::move(v)};
  return a;
}

inline onnx::ValueInfo TensorInfo(const std::string& name, onnx::ElementType type, std::vector<onnx::Dim> shape) {
  onnx::ValueInfo v;
  v.name = name;
  v.type.kind = onnx::ValueType::Kind::kTensor;
  v.type.element = type;
  v.type.has_shape = true;
  v.type.shape = std::move(shape);
  return v;
}

}  // namespace slm::exporter
