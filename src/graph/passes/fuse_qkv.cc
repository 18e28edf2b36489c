// fuse_qkv: the query, key and value products of one attention become one Gemm and a Split: x is read and quantized once, and
// one long run over weight rows replaces a long and two short ones.
//   q = Gemm(x, Wq)  k = Gemm(x, Wk)  v = Gemm(x, Wv)   =>   q, k, v = Split(Gemm(x, Wq | Wk | Wv))
// Left alone when the three are stored in different types (mixed quantizations often keep v in a wider one).
#include <fmt/format.h>

#include <algorithm>

#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

// The Gemm that an attention input comes from, through head norms and rotations; -1: something else.
int SourceGemm(const Graph& g, ValueId id) {
  for (int n = g.ProducerOf(id); n >= 0; n = g.ProducerOf(g.nodes[n].inputs[0])) {
    const Op op = g.nodes[n].op;
    if (op == Op::kGemm) return n;
    if (op != Op::kReshape && op != Op::kRmsNorm && op != Op::kRotary) return -1;
  }
  return -1;
}

}  // namespace

int FuseQkv(Graph& g) {
  Rewrite rewrite(g);
  const int n_nodes = static_cast<int>(g.nodes.size());
  for (int i = 0; i < n_nodes; ++i) {
    if (g.nodes[i].op != Op::kGroupQueryAttention) continue;
    const int gemms[] = {SourceGemm(g, g.nodes[i].inputs[kGqaQuery]), SourceGemm(g, g.nodes[i].inputs[kGqaKey]),
                         SourceGemm(g, g.nodes[i].inputs[kGqaValue])};
    const bool found = std::all_of(std::begin(gemms), std::end(gemms), [&](int n) { return n >= 0 && !rewrite.Touched(n); });
    if (!found || gemms[0] == gemms[1] || gemms[1] == gemms[2] || gemms[0] == gemms[2] || !CanStackGemms(g, gemms)) continue;
    const int layer = g.nodes[gemms[0]].layer;
    Node fused = StackGemms(g, gemms, fmt::format("layers.{}.qkv_proj", layer));
    Node split{Op::kSplit, fmt::format("layers.{}.qkv_split", layer), fused.outputs, {}, {}, layer};
    for (int n : gemms) split.outputs.push_back(g.nodes[n].outputs[0]);
    rewrite.Replace(gemms, *std::min_element(std::begin(gemms), std::end(gemms)), {std::move(fused), std::move(split)});
  }
  return rewrite.Apply();
}

}  // namespace slm::graph
