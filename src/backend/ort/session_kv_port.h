// The cache of a GenAI decoder's session in the canonical layout. Internal to ort/.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/key_order.h"
#include "backend/ort/decoder_io.h"
#include "backend/ort/feeds.h"
#include "kv/kv.h"

namespace slm::backend::ort {

class SessionKvPort final : public KvPort {
 public:
  // Null when the order of its keys is not known, layers differ, the type is not f32 or f16, or the cache lies in the memory of a device.
  // Feeds and cursor outlive the port.
  static std::unique_ptr<SessionKvPort> Create(const DecoderIo& io, const Decoder& d, int slots, const Feeds& feeds, kv::Cursor& cursor);
  KvShape shape() const override { return shape_; }
  void Read(int layer, int first, int n, float* keys, float* values) const override;
  void Write(int layer, int first, int n, const float* keys, const float* values) override;
  Status Take(int position) override { return cursor_.Take(position); }

 private:
  SessionKvPort(const Feeds& feeds, kv::Cursor& cursor) : feeds_(feeds), cursor_(cursor) {}
  std::byte* At(size_t tensor, int head, int slot) const;
  void Load(const std::byte* from, float* to) const;
  void Save(const float* from, std::byte* to) const;

  const Feeds& feeds_;
  kv::Cursor& cursor_;
  KvShape shape_;
  KeyOrder order_;
  int slots_ = 0, element_ = 4;
  mutable std::vector<float> head_;  // [D]
};

}  // namespace slm::backend::ort
