// See session_kv_port.h. The session's cache holds the layers' keys and values in turn, as DecoderIo::cache lists them.
#include "backend/ort/session_kv_port.h"

#include <cstring>

#include "base/float16.h"

namespace slm::backend::ort {

std::unique_ptr<SessionKvPort> SessionKvPort::Create(const DecoderIo& io, const Decoder& d, int slots, const Feeds& feeds,
                                                     kv::Cursor& cursor) {
  if (io.cache_memory) return nullptr;  // of a device
  const Port& first = io.cache[0].past;
  const bool float_type = first.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || first.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
  if (d.key_pairs == Decoder::Pairs::kUnknown || !float_type) return nullptr;
  for (const CachePort& c : io.cache)
    if (c.past.type != first.type || c.past.dims[1] != first.dims[1] || c.past.dims[3] != first.dims[3]) return nullptr;
  std::unique_ptr<SessionKvPort> p(new SessionKvPort(feeds, cursor));
  p->shape_ = {d.n_layers, static_cast<int>(first.dims[1]), static_cast<int>(first.dims[3])};
  const int rotary = d.rotary_dim > 0 ? d.rotary_dim : p->shape_.head_dim;
  if (rotary > p->shape_.head_dim || rotary % 2 != 0) return nullptr;
  p->order_ = {d.key_pairs == Decoder::Pairs::kNeighbours ? RotaryPairs::kNeighbours : RotaryPairs::kHalves, rotary};
  p->slots_ = slots;
  p->element_ = ElementBytes(first.type);
  p->head_.resize(static_cast<size_t>(p->shape_.head_dim));
  return p;
}

std::byte* SessionKvPort::At(size_t tensor, int head, int slot) const {
  return feeds_.cache(tensor) + (int64_t{head} * slots_ + slot) * shape_.head_dim * element_;
}

void SessionKvPort::Load(const std::byte* from, float* to) const {
  if (element_ == 4) {
    std::memcpy(to, from, head_.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < head_.size(); ++i) to[i] = HalfToFloat(reinterpret_cast<const uint16_t*>(from)[i]);
}
void SessionKvPort::Save(const float* from, std::byte* to) const {
  if (element_ == 4) {
    std::memcpy(to, from, head_.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < head_.size(); ++i) reinterpret_cast<uint16_t*>(to)[i] = FloatToHalf(from[i]);
}

void SessionKvPort::Read(int layer, int first, int n, float* keys, float* values) const {
  const auto at = static_cast<size_t>(2 * layer);
  const int d = shape_.head_dim;
  for (int h = 0; h < shape_.n_kv_heads; ++h)
    for (int i = 0; i < n; ++i, keys += d, values += d) {
      Load(At(at, h, first + i), head_.data());
      ToHalves(order_, head_.data(), d, keys);
      Load(At(at + 1, h, first + i), values);
    }
}

void SessionKvPort::Write(int layer, int first, int n, const float* keys, const float* values) {
  const auto at = static_cast<size_t>(2 * layer);
  const int d = shape_.head_dim;
  for (int h = 0; h < shape_.n_kv_heads; ++h)
    for (int i = 0; i < n; ++i, keys += d, values += d) {
      FromHalves(order_, keys, d, head_.data());
      Save(head_.data(), At(at, h, first + i));
      Save(values, At(at + 1, h, first + i));
    }
}

}  // namespace slm::backend::ort
