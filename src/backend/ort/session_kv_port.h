// The cache of a GenAI decoder's session in the canonical layout. Internal to ort/.
#pragma once
#include <memory>
#include <vector>

#include "backend/ort/decoder_io.h"
#include "backend/ort/feeds.h"
#include "backend/row_kv_port.h"

namespace slm::backend::ort {

class SessionKvPort final : public RowKvPort {
 public:
  // Null when the order of its keys is not known, layers differ, the type is not f32 or f16, or the cache lies in the memory of a device.
  // Feeds and cursor outlive the port.
  static std::unique_ptr<SessionKvPort> Create(const DecoderIo& io, const Decoder& d, int slots, const Feeds& feeds, kv::Cursor& cursor);

 private:
  SessionKvPort(const KvShape& shape, KvElement element, const KeyOrder& order, int slots, const Feeds& feeds, kv::Cursor& cursor)
      : RowKvPort(shape, element, std::vector<KeyOrder>(static_cast<size_t>(shape.n_layers), order), cursor),
        feeds_(feeds),
        slots_(slots) {}
  std::byte* KeyAt(int layer, int head, int slot) const override { return At(static_cast<size_t>(2 * layer), head, slot); }
  std::byte* ValueAt(int layer, int head, int slot) const override { return At(static_cast<size_t>(2 * layer + 1), head, slot); }
  std::byte* At(size_t tensor, int head, int slot) const {
    return feeds_.cache(tensor) + (int64_t{head} * slots_ + slot) * shape().head_dim * element_bytes();
  }

  const Feeds& feeds_;
  const int slots_;
};

}  // namespace slm::backend::ort
