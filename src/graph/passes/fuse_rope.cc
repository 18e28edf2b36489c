// fuse_rope: the rotations of q and k move into the attention (do_rotary = 1), which rotates each row on its way to the cache.
//   GroupQueryAttention(RotaryEmbedding(q, cos, sin, p), RotaryEmbedding(k, cos, sin, p), v)
//     =>   GroupQueryAttention(q, k, v, …, cos, sin, p) {do_rotary = 1}
#include "graph/passes/passes.h"

namespace slm::graph {
namespace {

// The rotation whose only reader is attention node `gqa`; -1: none.
int RotationOf(const Graph& g, int gqa, ValueId id) {
  const int n = g.ProducerOf(id);
  return n >= 0 && g.nodes[n].op == Op::kRotary && SoleConsumer(g, id) == gqa ? n : -1;
}

// Tables, positions and pairing are the same on both.
bool SameRotation(const Node& a, const Node& b) {
  return a.inputs[1] == b.inputs[1] && a.inputs[2] == b.inputs[2] && a.inputs[3] == b.inputs[3] &&
         a.Int(AttrKey::kInterleaved) == b.Int(AttrKey::kInterleaved) && a.Int(AttrKey::kRotaryDim) == b.Int(AttrKey::kRotaryDim);
}

}  // namespace

int FuseRope(Graph& g) {
  Rewrite rewrite(g);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    if (g.nodes[i].op != Op::kGroupQueryAttention || g.nodes[i].Int(AttrKey::kDoRotary) != 0) continue;
    const int q = RotationOf(g, i, g.nodes[i].inputs[kGqaQuery]), k = RotationOf(g, i, g.nodes[i].inputs[kGqaKey]);
    if (q < 0 || k < 0 || q == k || !SameRotation(g.nodes[q], g.nodes[k])) continue;
    const Node& rotation = g.nodes[q];
    Node fused = g.nodes[i];
    fused.inputs.resize(kGqaInputCount, kNoValue);
    fused.inputs[kGqaQuery] = rotation.inputs[0];
    fused.inputs[kGqaKey] = g.nodes[k].inputs[0];
    fused.inputs[kGqaCos] = rotation.inputs[1];
    fused.inputs[kGqaSin] = rotation.inputs[2];
    fused.inputs[kGqaPositions] = rotation.inputs[3];
    for (Attr& a : fused.attrs)
      if (a.key == AttrKey::kDoRotary) a.value = int64_t{1};
    fused.attrs.push_back({AttrKey::kRotaryDim, rotation.Int(AttrKey::kRotaryDim)});
    fused.attrs.push_back({AttrKey::kInterleaved, rotation.Int(AttrKey::kInterleaved)});
    const int nodes[] = {q, k, i};
    rewrite.Replace(nodes, i, {std::move(fused)});
  }
  return rewrite.Apply();
}

}  // namespace slm::graph
