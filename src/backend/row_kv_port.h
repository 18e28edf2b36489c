// A cache that keeps each head of a slot as one row of f16 or f32, in the canonical layout. Internal to backend/.
#pragma once
#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "backend/key_order.h"
#include "kv/kv.h"

namespace slm::backend {

enum class KvElement : uint8_t { kF16, kF32 };

// Whoever derives from it says where the rows lie. f16 is rounded to nearest even.
class RowKvPort : public KvPort {
 public:
  KvShape shape() const override { return shape_; }
  void Read(int layer, int first, int n, float* keys, float* values) const override;
  void Write(int layer, int first, int n, const float* keys, const float* values) override;
  Status Take(int position) override { return cursor_.Take(position); }

 protected:
  // `orders`: of the keys, by layer. The cursor outlives the port.
  RowKvPort(const KvShape& shape, KvElement element, std::vector<KeyOrder> orders, kv::Cursor& cursor)
      : shape_(shape), element_(element), orders_(std::move(orders)), cursor_(cursor), head_(static_cast<size_t>(shape.head_dim)) {}
  int64_t element_bytes() const { return element_ == KvElement::kF32 ? 4 : 2; }

 private:
  // Row [D] of one head in one slot.
  virtual std::byte* KeyAt(int layer, int head, int slot) const = 0;
  virtual std::byte* ValueAt(int layer, int head, int slot) const = 0;
  void Load(const std::byte* from, float* to) const;
  void Save(const float* from, std::byte* to) const;

  const KvShape shape_;
  const KvElement element_;
  const std::vector<KeyOrder> orders_;
  kv::Cursor& cursor_;
  mutable std::vector<float> head_;  // [D]
};

}  // namespace slm::backend
