// Where keys and values live: pure arithmetic of the static KV cache, and the cursor that says how much of it is in use.
//
// Why here: the executor, the session and an exporter must agree on one layout, and a wrong offset shows up only as wrong
// text. So positions and sizes are small value types with their own tests, and memory is somebody else's.
//
// Layout: the cache is a run of blocks of B = 256 slots (all S when there are fewer). In a block, per layer first K, then V, each
// [Hkv][B][D] of f16 or f32: 256 slots of one head are contiguous, which is what attention takes at a time, and what a short
// context uses lies together, so that it can have large pages without the memory of a long one. (At 1024 tokens decode of a 135M
// model was 7 % slower on pages of 4 KiB, which the layout [Hkv][S][D] needed in order to fill little by little.) In an int8 cache
// a head is a run of tiles of 16 slots, each with its scales in front (kernels/attention_int8/contract.h says what lies where
// inside). All K and V start at multiples of 64 bytes. Length S is fixed at load; a layer with a local window still owns all S
// slots, the window only limits which of them a query reads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace slm::kv {

// Shape of one layer's cache. Layers may differ (local windows, other head counts).
struct LayerShape {
  int n_kv_heads = 0;  // Hkv
  int head_dim = 0;    // D
  int window = 0;      // keys a query sees, itself included; 0: all
};

inline constexpr int64_t kBlockSlots = 256;

// First slot that the query at `position` reads.
constexpr int64_t FirstVisible(int64_t position, int64_t window) { return window > 0 && position + 1 > window ? position + 1 - window : 0; }

// The smallest run of slots of one KV head that stands alone, and its bytes: one slot, or a tile of an int8 cache.
struct Tile {
  int slots;
  uint64_t key_bytes, value_bytes;
};
// type: kF16, kF32 or kI8. int8 keys: an f16 scale for 32 values, values: an f32 scale for a head; tiles end at 64 bytes.
constexpr Tile TileOf(DType type, int head_dim) {
  const uint64_t d = static_cast<uint64_t>(head_dim);
  if (type != DType::kI8) return {1, RowBytes(type, d), RowBytes(type, d)};
  return {16, (32 * ((d + 31) / 32) + 16 * d + 63) / 64 * 64, (64 + 16 * d + 63) / 64 * 64};
}

// Byte places of one layer inside the cache buffer.
struct LayerPlace {
  LayerShape shape;
  uint64_t k_offset = 0, v_offset = 0;  // bytes from the start of the buffer to slot 0 of head 0
  uint64_t head_stride = 0;             // values from one KV head to the next: B * D, B of whole tiles
  uint64_t k_gap = 0, v_gap = 0;        // bytes from the end of a head's slots in one block to their continuation in the next
};

// The whole cache of one sequence. Immutable; copy it freely.
class Layout {
 public:
  // capacity: S, slots per layer, 1 ... 2^30; memory is planned for whole blocks. type: kF16, kF32 or kI8.
  // Errors: kInvalidArgument (no layer, a zero or negative dimension, another type), kLimit (the size overflows or passes 2^47 bytes).
  static Result<Layout> Plan(const std::vector<LayerShape>& layers, int64_t capacity, DType type);

  int64_t capacity() const { return capacity_; }
  DType type() const { return type_; }
  int n_layers() const { return static_cast<int>(places_.size()); }
  const LayerPlace& layer(int i) const { return places_[static_cast<size_t>(i)]; }
  uint64_t total_bytes() const { return total_bytes_; }
  // Bytes of keys and values that one more token fills, over all layers; of an int8 cache the share of its tiles.
  uint64_t bytes_per_token() const { return bytes_per_token_; }
  // Bytes that decoding the token at `position` reads: what a bandwidth figure is made of. It does not depend on the capacity.
  uint64_t BytesRead(int64_t position) const;

 private:
  std::vector<LayerPlace> places_;
  int64_t capacity_ = 0;
  DType type_ = DType::kF16;
  uint64_t total_bytes_ = 0, bytes_per_token_ = 0;
};

// How many slots are in use. Only moves through checked steps; a failed step changes nothing.
class Cursor {
 public:
  constexpr Cursor() = default;
  constexpr explicit Cursor(int64_t capacity) : capacity_(capacity) {}
  constexpr int64_t used() const { return used_; }
  constexpr int64_t capacity() const { return capacity_; }
  constexpr int64_t room() const { return capacity_ - used_; }

  // Takes the next n >= 0 slots and returns the first one.
  // Errors: kLimit naming both numbers when n slots are not free; kInvalidArgument for n < 0.
  Result<int64_t> Advance(int64_t n);
  // Goes back to `position` slots in use (the first slot to be written next); the slots after it hold stale values that
  // attention never reads. Errors: kInvalidArgument when position is negative or lies past used().
  Status Rewind(int64_t position);
  // Slots [0, position) are in use, whatever was before: somebody wrote them. Errors: kLimit, kInvalidArgument when negative.
  Status Take(int64_t position);

 private:
  int64_t capacity_ = 0, used_ = 0;
};

}  // namespace slm::kv
