// fold_constants: an element-wise node whose inputs are all constants becomes a constant, computed in f32 as the node would.
// The case that matters: Gemma's norm weights, stored as w - 1. Only small results are folded: weights stay in their file.

#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

constexpr int64_t kMaxFoldedValues = 1 << 20;

int64_t Count(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

bool IsFoldable(const Graph& g, const Node& n) {
  if (n.op != Op::kAdd && n.op != Op::kMul && n.op != Op::kDiv) return false;
  for (ValueId id : n.inputs)
    if (!g.IsConstant(id) || Count(g.values[id].shape) > kMaxFoldedValues) return false;
  return n.outputs[0] != g.output_logits && Count(g.values[n.outputs[0]].shape) <= kMaxFoldedValues;
}

}  // namespace

int FoldConstants(Graph& g) {
  Rewrite rewrite(g);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const Node& n = g.nodes[i];
    if (!IsFoldable(g, n)) continue;
    Value& out = g.values[n.outputs[0]];
    auto folded = std::make_shared<Constant>();
    folded->data = FixedValues(g, n.outputs[0]);
    out.constant = std::move(folded);
    rewrite.Replace(std::vector<int>{i}, i, {});
  }
  return rewrite.Apply();
}

}  // namespace slm::graph
