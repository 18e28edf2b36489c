// Attributes of ONNX nodes and values of ONNX graphs, a line each.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "onnx/tensor_info.h"

namespace slm::exporter {

using onnx::TensorInfo;

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

}  // namespace slm::exporter
