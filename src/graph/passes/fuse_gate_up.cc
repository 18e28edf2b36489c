// fuse_gate_up: the two products of a gated MLP (arXiv 2002.05202) become one, and activation and product one element-wise step.
//   Mul(act(Gemm(x, Wg)), Gemm(x, Wu))   =>   GatedActivation(Gemm(x, Wg | Wu))
#include <fmt/format.h>

#include <optional>

#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

std::optional<model::Activation> ActivationOf(const Node& n) {
  if (n.op == Op::kSwish) return model::Activation::kSilu;
  if (n.op == Op::kGelu)
    return n.String(AttrKey::kApproximate, "none") == "tanh" ? model::Activation::kGeluTanh : model::Activation::kGeluErf;
  return std::nullopt;
}

struct Match {
  int act, gate, up;
  model::Activation kind;
};

// `gate_side` and `up_side`: the two inputs of the Mul, in either order.
std::optional<Match> MatchSides(const Graph& g, int mul, ValueId gate_side, ValueId up_side) {
  Match m{g.ProducerOf(gate_side), -1, g.ProducerOf(up_side), {}};
  if (m.act < 0 || m.up < 0) return std::nullopt;
  const auto kind = ActivationOf(g.nodes[m.act]);
  if (!kind) return std::nullopt;
  m.kind = *kind;
  m.gate = g.ProducerOf(g.nodes[m.act].inputs[0]);
  if (m.gate < 0 || m.gate == m.up || g.nodes[m.gate].op != Op::kGemm || g.nodes[m.up].op != Op::kGemm) return std::nullopt;
  if (SoleConsumer(g, gate_side) != mul || SoleConsumer(g, up_side) != mul || SoleConsumer(g, g.nodes[m.act].inputs[0]) != m.act)
    return std::nullopt;
  // GatedActivation halves its input, so both halves must be equally wide.
  if (g.values[g.nodes[m.gate].outputs[0]].shape != g.values[up_side].shape) return std::nullopt;
  const int gemms[] = {m.gate, m.up};
  return CanStackGemms(g, gemms) ? std::optional(m) : std::nullopt;
}

}  // namespace

int FuseGateUp(Graph& g) {
  Rewrite rewrite(g);
  const int n_nodes = static_cast<int>(g.nodes.size());
  for (int i = 0; i < n_nodes; ++i) {
    if (g.nodes[i].op != Op::kMul) continue;
    const ValueId a = g.nodes[i].inputs[0], b = g.nodes[i].inputs[1];
    auto m = MatchSides(g, i, a, b);
    if (!m) m = MatchSides(g, i, b, a);
    if (!m || rewrite.Touched(m->gate) || rewrite.Touched(m->up)) continue;
    const int layer = g.nodes[i].layer;
    const int gemms[] = {m->gate, m->up}, nodes[] = {m->gate, m->up, m->act, i};
    Node fused = StackGemms(g, gemms, fmt::format("layers.{}.gate_up_proj", layer));
    Node gated{Op::kGatedActivation,
               fmt::format("layers.{}.gated_act", layer),
               fused.outputs,
               g.nodes[i].outputs,
               {{AttrKey::kActivation, static_cast<int64_t>(m->kind)}},
               layer};
    rewrite.Replace(nodes, i, {std::move(fused), std::move(gated)});
  }
  return rewrite.Apply();
}

}  // namespace slm::graph
