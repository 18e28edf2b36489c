// See kv_port.h.
#include "backend/cpu/kv_port.h"

#include <cstring>

#include "base/float16.h"

namespace slm::backend {

std::unique_ptr<CpuKvPort> CpuKvPort::Create(const kv::Layout& layout, std::vector<KeyOrder> orders, kernels::KvPackKernels pack,
                                             std::byte* data, kv::Cursor& cursor) {
  if (layout.type() == DType::kI8 || orders.size() != static_cast<size_t>(layout.n_layers())) return nullptr;
  const kv::LayerShape& first = layout.layer(0).shape;
  for (int i = 1; i < layout.n_layers(); ++i) {
    const kv::LayerShape& other = layout.layer(i).shape;
    if (other.n_kv_heads != first.n_kv_heads || other.head_dim != first.head_dim) return nullptr;
  }
  return std::unique_ptr<CpuKvPort>(new CpuKvPort(layout, std::move(orders), pack, data, cursor));
}

KvShape CpuKvPort::shape() const {
  const kv::LayerShape& s = layout_.layer(0).shape;
  return {layout_.n_layers(), s.n_kv_heads, s.head_dim};
}

std::byte* CpuKvPort::At(uint64_t offset, uint64_t gap, uint64_t head_stride, int head, int slot) const {
  const uint64_t element = layout_.type() == DType::kF32 ? 4 : 2;
  const uint64_t block = static_cast<uint64_t>(slot) / kv::kBlockSlots;
  const uint64_t at = static_cast<uint64_t>(head) * head_stride + static_cast<uint64_t>(slot) * head_.size();
  return data_ + offset + block * gap + at * element;
}
std::byte* CpuKvPort::KeyAt(int layer, int head, int slot) const {
  const kv::LayerPlace& p = layout_.layer(layer);
  return At(p.k_offset, p.k_gap, p.head_stride, head, slot);
}
std::byte* CpuKvPort::ValueAt(int layer, int head, int slot) const {
  const kv::LayerPlace& p = layout_.layer(layer);
  return At(p.v_offset, p.v_gap, p.head_stride, head, slot);
}

void CpuKvPort::Load(const std::byte* from, float* to) const {
  if (layout_.type() == DType::kF32) {
    std::memcpy(to, from, head_.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < head_.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = HalfToFloat(bits);
  }
}
void CpuKvPort::Store(const float* from, std::byte* to) const {
  if (layout_.type() == DType::kF32) std::memcpy(to, from, head_.size() * sizeof(float));
  else pack_.store_f16(from, static_cast<int>(head_.size()), reinterpret_cast<uint16_t*>(to));
}

void CpuKvPort::Read(int layer, int first, int n, float* keys, float* values) const {
  const int heads = layout_.layer(layer).shape.n_kv_heads, d = static_cast<int>(head_.size());
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < n; ++i, keys += d, values += d) {
      Load(KeyAt(layer, h, first + i), head_.data());
      ToHalves(orders_[static_cast<size_t>(layer)], head_.data(), d, keys);
      Load(ValueAt(layer, h, first + i), values);
    }
}

void CpuKvPort::Write(int layer, int first, int n, const float* keys, const float* values) {
  const int heads = layout_.layer(layer).shape.n_kv_heads, d = static_cast<int>(head_.size());
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < n; ++i, keys += d, values += d) {
      FromHalves(orders_[static_cast<size_t>(layer)], keys, d, head_.data());
      Store(head_.data(), KeyAt(layer, h, first + i));
      Store(values, ValueAt(layer, h, first + i));
    }
}

Status CpuKvPort::Take(int position) { return cursor_.Take(position); }

}  // namespace slm::backend
