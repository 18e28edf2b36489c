// The cache of the CPU back end in the canonical layout. Internal to cpu/.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/key_order.h"
#include "kernels/kv_pack/contract.h"
#include "kv/kv.h"

namespace slm::backend {

class CpuKvPort final : public KvPort {
 public:
  // Null when layers differ or the type is int8, whose keys are kept turned. `data` and `cursor` outlive the port.
  static std::unique_ptr<CpuKvPort> Create(const kv::Layout& layout, std::vector<KeyOrder> orders, kernels::KvPackKernels pack,
                                           std::byte* data, kv::Cursor& cursor);
  KvShape shape() const override;
  void Read(int layer, int first, int n, float* keys, float* values) const override;
  void Write(int layer, int first, int n, const float* keys, const float* values) override;
  Status Take(int position) override;

 private:
  CpuKvPort(const kv::Layout& layout, std::vector<KeyOrder> orders, kernels::KvPackKernels pack, std::byte* data, kv::Cursor& cursor)
      : layout_(layout), orders_(std::move(orders)), pack_(pack), data_(data), cursor_(cursor), head_(HeadDim()) {}
  size_t HeadDim() const { return static_cast<size_t>(layout_.layer(0).shape.head_dim); }
  // Of one head in one slot.
  std::byte* KeyAt(int layer, int head, int slot) const;
  std::byte* ValueAt(int layer, int head, int slot) const;
  std::byte* At(uint64_t offset, uint64_t gap, uint64_t head_stride, int head, int slot) const;
  void Load(const std::byte* from, float* to) const;
  void Store(const float* from, std::byte* to) const;

  const kv::Layout layout_;
  const std::vector<KeyOrder> orders_;  // by layer
  const kernels::KvPackKernels pack_;
  std::byte* const data_;
  kv::Cursor& cursor_;
  mutable std::vector<float> head_;  // [D]
};

}  // namespace slm::backend
