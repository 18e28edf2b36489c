// See session_kv_port.h. The session's cache holds the layers' keys and values in turn, as DecoderIo::cache lists them.
#include "backend/ort/session_kv_port.h"

namespace slm::backend::ort {

std::unique_ptr<SessionKvPort> SessionKvPort::Create(const DecoderIo& io, const Decoder& d, int slots, const Feeds& feeds,
                                                     kv::Cursor& cursor) {
  if (io.cache_memory) return nullptr;  // of a device
  const Port& first = io.cache[0].past;
  const bool float_type = first.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || first.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
  if (d.key_pairs == Decoder::Pairs::kUnknown || !float_type) return nullptr;
  for (const CachePort& c : io.cache)
    if (c.past.type != first.type || c.past.dims[1] != first.dims[1] || c.past.dims[3] != first.dims[3]) return nullptr;
  const KvShape shape{d.n_layers, static_cast<int>(first.dims[1]), static_cast<int>(first.dims[3])};
  const int rotary = d.rotary_dim > 0 ? d.rotary_dim : shape.head_dim;
  if (rotary > shape.head_dim || rotary % 2 != 0) return nullptr;
  const KeyOrder order{d.key_pairs == Decoder::Pairs::kNeighbours ? RotaryPairs::kNeighbours : RotaryPairs::kHalves, rotary};
  const auto element = first.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ? KvElement::kF32 : KvElement::kF16;
  return std::unique_ptr<SessionKvPort>(new SessionKvPort(shape, element, order, slots, feeds, cursor));
}

}  // namespace slm::backend::ort
