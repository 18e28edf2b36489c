// The cache of the CPU back end in the canonical layout. Internal to cpu/.
#pragma once
#include <memory>
#include <vector>

#include "backend/row_kv_port.h"
#include "graph/graph.h"

namespace slm::backend {

// How each layer's attention keeps its keys: turned by itself, by a node before it, or not at all. Pure.
std::vector<KeyOrder> KeyOrdersOf(const graph::Graph& g, const kv::Layout& layout);

class CpuKvPort final : public RowKvPort {
 public:
  // Null when layers differ or the type is int8, whose keys are kept turned. `data` [layout.total_bytes()] and `cursor` outlive the port.
  static std::unique_ptr<CpuKvPort> Create(const kv::Layout& layout, std::vector<KeyOrder> orders, std::byte* data, kv::Cursor& cursor);

 private:
  CpuKvPort(const kv::Layout& layout, std::vector<KeyOrder> orders, std::byte* data, kv::Cursor& cursor);
  std::byte* KeyAt(int layer, int head, int slot) const override;
  std::byte* ValueAt(int layer, int head, int slot) const override;
  std::byte* At(uint64_t offset, uint64_t gap, uint64_t head_stride, int head, int slot) const;

  const kv::Layout layout_;
  std::byte* const data_;
};

}  // namespace slm::backend
