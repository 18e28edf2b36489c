// See row_kv_port.h.
#include "backend/row_kv_port.h"

#include <cstring>

#include "base/float16.h"

namespace slm::backend {

void RowKvPort::Load(const std::byte* from, float* to) const {
  if (element_ == KvElement::kF32) {
    std::memcpy(to, from, head_.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < head_.size(); ++i) to[i] = HalfToFloat(reinterpret_cast<const uint16_t*>(from)[i]);
}
void RowKvPort::Save(const float* from, std::byte* to) const {
  if (element_ == KvElement::kF32) {
    std::memcpy(to, from, head_.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < head_.size(); ++i) reinterpret_cast<uint16_t*>(to)[i] = FloatToHalf(from[i]);
}

void RowKvPort::Read(int layer, int first, int n, float* keys, float* values) const {
  const int d = shape_.head_dim;
  for (int h = 0; h < shape_.n_kv_heads; ++h)
    for (int i = 0; i < n; ++i, keys += d, values += d) {
      Load(KeyAt(layer, h, first + i), head_.data());
      ToHalves(orders_[static_cast<size_t>(layer)], head_.data(), d, keys);
      Load(ValueAt(layer, h, first + i), values);
    }
}

void RowKvPort::Write(int layer, int first, int n, const float* keys, const float* values) {
  const int d = shape_.head_dim;
  for (int h = 0; h < shape_.n_kv_heads; ++h)
    for (int i = 0; i < n; ++i, keys += d, values += d) {
      FromHalves(orders_[static_cast<size_t>(layer)], keys, d, head_.data());
      Save(head_.data(), KeyAt(layer, h, first + i));
      Save(values, ValueAt(layer, h, first + i));
    }
}

}  // namespace slm::backend
