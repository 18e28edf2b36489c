// See onnx_cost.h.
#include "onnx_cost.h"

#include <map>
#include <set>

namespace slm::cli {
namespace {

// Multiplies and adds of a product with a constant matrix for one token; 0 where the sizes are none.
int64_t OpsOf(const onnx::Node& n, const std::map<std::string, const onnx::Tensor*>& constants) {
  if (n.op_type == "MatMulNBits") {
    constexpr int64_t kMostWidth = int64_t{1} << 30;
    const int64_t k = n.Int("K", 0), width = n.Int("N", 0);
    return k < 1 || width < 1 || k > kMostWidth || width > kMostWidth / k ? 0 : 2 * k * width;
  }
  if (n.op_type != "MatMul" || n.inputs.size() != 2) return 0;
  const auto b = constants.find(n.inputs[1]);
  return b == constants.end() ? 0 : 2 * b->second->n_values();
}

}  // namespace

DecodeCost CostOf(const onnx::Model& m) {
  DecodeCost d;
  std::map<std::string, const onnx::Tensor*> constants;
  for (const onnx::Tensor& t : m.graph.initializers) constants[t.name] = &t;
  std::set<const std::byte*> held, read;
  for (const onnx::Tensor& t : m.graph.initializers)
    if (!t.data.empty() && held.insert(t.data.data()).second) d.weights_bytes += static_cast<int64_t>(t.data.size());
  for (const onnx::Node& n : m.graph.nodes) {
    d.ops_per_token += OpsOf(n, constants);
    if (n.op_type == "Gather" || n.op_type == "GatherBlockQuantized") continue;
    for (const std::string& input : n.inputs) {
      const auto t = constants.find(input);
      if (t == constants.end() || t->second->data.empty() || !read.insert(t->second->data.data()).second) continue;
      d.bytes_per_token += static_cast<int64_t>(t->second->data.size());
    }
  }
  return d;
}

}  // namespace slm::cli
