// Several matrix products of the same x as one: their weight rows stacked. Shared by fuse_qkv and fuse_gate_up. A list of row
// ranges is enough, nothing is copied; ranges that continue each other in one tensor (a file that was fused already) are joined.
#include <algorithm>

#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

bool IsFileTensor(const Graph& g, ValueId id) { return g.IsConstant(id) && !g.values[id].constant->parts.empty(); }

ValueId Stack(Graph& g, const std::vector<ValueId>& pieces, const std::string& name) {
  auto stacked = std::make_shared<Constant>();
  Value v;
  v.name = name;
  v.shape = g.values[pieces[0]].shape;
  v.shape[0] = 0;
  for (ValueId id : pieces) {
    v.shape[0] += g.values[id].shape[0];
    for (const ConstantPart& p : g.values[id].constant->parts) {
      if (!stacked->parts.empty() && stacked->parts.back().tensor == p.tensor && stacked->parts.back().row_end == p.row_begin)
        stacked->parts.back().row_end = p.row_end;
      else stacked->parts.push_back(p);
    }
  }
  v.constant = std::move(stacked);
  return g.AddValue(std::move(v));
}

bool HasBias(const Node& n) { return n.inputs.size() > 2 && n.inputs[2] != kNoValue; }

}  // namespace

bool CanStackGemms(const Graph& g, std::span<const int> gemms) {
  const Node& first = g.nodes[gemms[0]];
  if (!IsFileTensor(g, first.inputs[1])) return false;
  const model::Tensor& like = *g.values[first.inputs[1]].constant->parts[0].tensor;
  for (int i : gemms) {
    const Node& n = g.nodes[i];
    if (n.op != Op::kGemm || n.inputs[0] != first.inputs[0] || HasBias(n) != HasBias(first)) return false;
    for (size_t c = 1; c < n.inputs.size(); ++c) {
      if (n.inputs[c] == kNoValue) continue;
      if (!IsFileTensor(g, n.inputs[c]) || SoleConsumer(g, n.inputs[c]) != i) return false;
    }
    for (const ConstantPart& p : g.values[n.inputs[1]].constant->parts)
      if (p.tensor->dtype != like.dtype || !p.tensor->grouped != !like.grouped) return false;
  }
  return true;
}

Node StackGemms(Graph& g, std::span<const int> gemms, const std::string& name) {
  std::vector<ValueId> weights, biases;
  for (int i : gemms) {
    weights.push_back(g.nodes[i].inputs[1]);
    if (HasBias(g.nodes[i])) biases.push_back(g.nodes[i].inputs[2]);
  }
  const Node& first = g.nodes[gemms[0]];
  Node fused{Op::kGemm, name, {first.inputs[0], Stack(g, weights, name + ".weight")}, {}, first.attrs, first.layer};
  if (!biases.empty()) fused.inputs.push_back(Stack(g, biases, name + ".bias"));
  const Shape out{g.values[fused.inputs[0]].shape[0], g.values[fused.inputs[1]].shape[0]};
  fused.outputs = {g.AddValue({name, out, ElementType::kF32, nullptr})};
  return fused;
}

}  // namespace slm::graph
