#include "backend/cpu/sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention_int8/contract.h"

namespace slm::backend {
using graph::AttrKey;
using graph::Node;
using graph::Op;
using graph::ValueId;

namespace {

DType CacheType(kernels::KvType t) {
  switch (t) {
    case kernels::KvType::kF16: return DType::kF16;
    case kernels::KvType::kF32: return DType::kF32;
    case kernels::KvType::kInt8: return DType::kI8;
  }
  return DType::kF16;
}

// The layout and the kernels say each for itself how long a tile is.
constexpr bool Agree(int head_dim) {
  const kv::Tile t = kv::TileOf(DType::kI8, head_dim);
  return t.slots == kernels::kTileSlots && static_cast<int64_t>(t.key_bytes) == kernels::KeyTileBytes(head_dim) &&
         static_cast<int64_t>(t.value_bytes) == kernels::ValueTileBytes(head_dim);
}
constexpr bool AgreeOnAll() {
  for (int d = 8; d <= 256; d += 8)
    if (!Agree(d)) return false;
  return true;
}
static_assert(AgreeOnAll());

}  // namespace

Status SizeCache(const graph::Graph& g, const CpuOptions& o, LoweredPlan& out) {
  std::vector<kv::LayerShape> layers;
  for (const Node& n : g.nodes) {
    if (n.op != Op::kGroupQueryAttention) continue;
    const int64_t hkv = n.Int(AttrKey::kKvNumHeads);
    const int64_t d = RowWidth(g, n.inputs[graph::kGqaKey]) / std::max<int64_t>(1, hkv);
    if (d % 8 != 0 || d > 256 || d <= 0)
      return Error(Code::kUnsupported, fmt::format("{}: heads of {} values", n.name, d), "the CPU kernels take multiples of 8 up to 256");
    const size_t layer = static_cast<size_t>(n.Int(AttrKey::kLayer));
    if (layer != layers.size()) return Error(Code::kInternal, n.name + ": KV layers out of order");
    const int64_t window = n.Int(AttrKey::kLocalWindow, -1);
    layers.push_back({static_cast<int>(hkv), static_cast<int>(d), window > 0 ? static_cast<int>(window) : 0});
    const int hq = static_cast<int>(n.Int(AttrKey::kNumHeads));
    out.partial_floats = std::max(out.partial_floats, kernels::PartialFloats(hq, static_cast<int>(d), o.context));
    out.attention_floats = std::max(out.attention_floats, kernels::AttentionScratchFloats(hq, static_cast<int>(hkv), static_cast<int>(d)));
  }
  SLM_ASSIGN_OR_RETURN(out.kv, kv::Layout::Plan(layers, o.context, CacheType(o.kv_type)));
  return Ok();
}

Result<graph::MemoryPlan> SizeArena(const graph::Graph& g, const Analysis& a, LoweredPlan& out) {
  graph::MemoryPlanOptions mo;
  mo.tokens = out.chunk;
  for (size_t v = 0; v < g.values.size(); ++v) {
    const ValueId id = static_cast<ValueId>(v);
    if (a.owner[v] != id && g.ProducerOf(id) >= 0 && g.nodes[g.ProducerOf(id)].op != Op::kReshape) mo.aliases.emplace_back(id, a.owner[v]);
    if (!a.stored[v] || a.in_logits[v]) mo.unplanned.push_back(id);
    if (a.row_values[v] > 0) mo.row_values.emplace_back(id, a.row_values[v]);
    if (!g.IsConstant(id)) out.row_floats = std::max(out.row_floats, RowWidth(g, id));
  }
  SLM_ASSIGN_OR_RETURN(auto plan, graph::PlanMemory(g, mo));
  out.arena_bytes = plan.arena_bytes;
  if (g.output_logits != graph::kNoValue) out.vocab_size = static_cast<int>(RowWidth(g, g.output_logits));
  out.logits_stride = kernels::PaddedRows(out.vocab_size);
  return plan;
}

}  // namespace slm::backend
