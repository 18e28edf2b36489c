// Arrays as the fixtures of tests hold them.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "reference/reference.h"

namespace slm::reference {

// Of {"type": ONNX's number of the element type, "dims": [...], "values": [...]}, written by tests/tiny/make_*.py. Throws what nlohmann
// throws for another document.
inline Array ArrayOf(const nlohmann::json& j) {
  Array a;
  a.type = static_cast<onnx::ElementType>(j["type"].get<int>());
  a.dims = j["dims"].get<std::vector<int64_t>>();
  if (onnx::Info(a.type).kind == onnx::ElementKind::kFloating) {
    // Through the type: the text has nine digits.
    for (const double x : j["values"]) a.f.push_back(a.type == onnx::ElementType::kFloat ? static_cast<float>(x) : x);
  } else {
    a.i = j["values"].get<std::vector<int64_t>>();
  }
  return a;
}

}  // namespace slm::reference
