// fuse_skip_rmsnorm: a residual add and the norm that reads it become one step, which touches the residual stream once.
//   s = Add(x, d)  y = RMSNormalization(s, w)   =>   y, s = SkipSimplifiedLayerNormalization(x, d, w)
#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

// The first norm over `sum` whose weight is a constant (hence available at the add); -1: none.
int NormOf(const Graph& g, ValueId sum) {
  for (int n : g.ConsumersOf(sum))
    if (g.nodes[n].op == Op::kRmsNorm && g.nodes[n].inputs[0] == sum && g.IsConstant(g.nodes[n].inputs[1])) return n;
  return -1;
}

}  // namespace

int FuseSkipRmsNorm(Graph& g) {
  Rewrite rewrite(g);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const Node& add = g.nodes[i];
    if (add.op != Op::kAdd) continue;
    const ValueId x = add.inputs[0], d = add.inputs[1], sum = add.outputs[0];
    if (g.IsConstant(x) || g.IsConstant(d) || g.values[x].shape != g.values[d].shape) continue;
    const int n = NormOf(g, sum);
    if (n < 0 || rewrite.Touched(n)) continue;
    const Node& norm = g.nodes[n];
    Node fused{Op::kSkipRmsNorm, norm.name, {x, d, norm.inputs[1]}, {norm.outputs[0], sum}, norm.attrs, norm.layer};
    const int nodes[] = {i, n};
    rewrite.Replace(nodes, i, {std::move(fused)});
  }
  return rewrite.Apply();
}

}  // namespace slm::graph
