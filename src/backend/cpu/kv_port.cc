// See kv_port.h.
#include "backend/cpu/kv_port.h"

namespace slm::backend {
namespace {
using graph::AttrKey;
using graph::Node;
using graph::Op;

KeyOrder OrderOf(const graph::Graph& g, const Node& attention, int head_dim) {
  const Node* rotary = attention.Int(AttrKey::kDoRotary) != 0 ? &attention : nullptr;
  if (const int i = g.ProducerOf(attention.inputs[graph::kGqaKey]); !rotary && i >= 0 && g.nodes[i].op == Op::kRotary) rotary = &g.nodes[i];
  if (!rotary) return {};
  const bool neighbours = rotary->Int(AttrKey::kInterleaved) != 0;
  return {neighbours ? RotaryPairs::kNeighbours : RotaryPairs::kHalves, static_cast<int>(rotary->Int(AttrKey::kRotaryDim, head_dim))};
}

}  // namespace

std::vector<KeyOrder> KeyOrdersOf(const graph::Graph& g, const kv::Layout& layout) {
  std::vector<KeyOrder> out(static_cast<size_t>(layout.n_layers()));
  for (const Node& n : g.nodes) {
    if (n.op != Op::kGroupQueryAttention) continue;
    const int layer = static_cast<int>(n.Int(AttrKey::kLayer));
    out[static_cast<size_t>(layer)] = OrderOf(g, n, layout.layer(layer).shape.head_dim);
  }
  return out;
}

std::unique_ptr<CpuKvPort> CpuKvPort::Create(const kv::Layout& layout, std::vector<KeyOrder> orders, std::byte* data, kv::Cursor& cursor) {
  if (layout.type() == DType::kI8 || orders.size() != static_cast<size_t>(layout.n_layers())) return nullptr;
  const kv::LayerShape& first = layout.layer(0).shape;
  for (int i = 1; i < layout.n_layers(); ++i) {
    const kv::LayerShape& other = layout.layer(i).shape;
    if (other.n_kv_heads != first.n_kv_heads || other.head_dim != first.head_dim) return nullptr;
  }
  return std::unique_ptr<CpuKvPort>(new CpuKvPort(layout, std::move(orders), data, cursor));
}

CpuKvPort::CpuKvPort(const kv::Layout& layout, std::vector<KeyOrder> orders, std::byte* data, kv::Cursor& cursor)
    : RowKvPort({layout.n_layers(), layout.layer(0).shape.n_kv_heads, layout.layer(0).shape.head_dim},
                layout.type() == DType::kF32 ? KvElement::kF32 : KvElement::kF16, std::move(orders), cursor),
      layout_(layout),
      data_(data) {}

std::byte* CpuKvPort::At(uint64_t offset, uint64_t gap, uint64_t head_stride, int head, int slot) const {
  const auto block = static_cast<uint64_t>(slot) / kv::kBlockSlots;
  const uint64_t at = static_cast<uint64_t>(head) * head_stride + static_cast<uint64_t>(slot) * static_cast<uint64_t>(shape().head_dim);
  return data_ + offset + block * gap + at * static_cast<uint64_t>(element_bytes());
}
std::byte* CpuKvPort::KeyAt(int layer, int head, int slot) const {
  const kv::LayerPlace& p = layout_.layer(layer);
  return At(p.k_offset, p.k_gap, p.head_stride, head, slot);
}
std::byte* CpuKvPort::ValueAt(int layer, int head, int slot) const {
  const kv::LayerPlace& p = layout_.layer(layer);
  return At(p.v_offset, p.v_gap, p.head_stride, head, slot);
}

}  // namespace slm::backend
