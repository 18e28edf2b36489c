// libFuzzer: any bytes as a description. One that is read is asked about a small graph.
#include <string>

#include "targets/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm;
  const auto target = targets::ParseTarget({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!target.ok()) return target.error().message().empty() ? 1 : 0;
  onnx::Model m;
  m.opsets = {{"", 21}};
  onnx::ValueInfo x;
  x.name = "x";
  x.type = {.kind = onnx::ValueType::Kind::kTensor, .element = onnx::ElementType::kFloat, .has_shape = true, .shape = {{1, ""}, {-1, "n"}}};
  m.graph.inputs = {x};
  const char* value = "x";
  for (const char* op : {"MatMul", "Tanh", "Erf", "Reshape"}) {
    onnx::Node n;
    n.op_type = op;
    n.inputs = {value};
    n.outputs = {value = op};
    m.graph.nodes.push_back(n);
  }
  if (!targets::Check(m, target.value(), {}).ok()) __builtin_trap();
  return 0;
}
