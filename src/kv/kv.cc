#include "kv/kv.h"

#include <algorithm>

#include "base/arena.h"

namespace slm::kv {
namespace {

constexpr int64_t kMaxCapacity = int64_t{1} << 30;
constexpr uint64_t kMaxBytes = uint64_t{1} << 47;  // user address space of x86-64 and of 48-bit Arm

// a * b, or kMaxBytes + 1 when it passes kMaxBytes.
constexpr uint64_t Capped(uint64_t a, uint64_t b) { return b != 0 && a > kMaxBytes / b ? kMaxBytes + 1 : a * b; }

Error TooLarge(size_t layer) {
  return Error(Code::kLimit, "kv cache: layer " + std::to_string(layer) + ": size passes 2^47 bytes", "reduce the context length");
}

}  // namespace

Result<Layout> Layout::Plan(const std::vector<LayerShape>& layers, int64_t capacity, DType type) {
  if (type != DType::kF16 && type != DType::kF32 && type != DType::kI8)
    return Error(Code::kInvalidArgument, "kv cache: type " + std::string(Info(type).name) + " is no cache type", "use F16, F32 or I8");
  if (capacity < 1 || capacity > kMaxCapacity)
    return Error(Code::kInvalidArgument, "kv cache: context of " + std::to_string(capacity) + " slots",
                 "choose 1 to " + std::to_string(kMaxCapacity));
  if (layers.empty()) return Error(Code::kInvalidArgument, "kv cache: no layers", "check the model's layer count");
  Layout out;
  out.capacity_ = capacity;
  out.type_ = type;
  const int64_t block_slots = std::min(kBlockSlots, capacity);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerShape& s = layers[i];
    if (s.n_kv_heads < 1 || s.head_dim < 1 || s.window < 0)
      return Error(Code::kInvalidArgument,
                   "kv cache: layer " + std::to_string(i) + ": " + std::to_string(s.n_kv_heads) + " KV heads of " +
                       std::to_string(s.head_dim) + " values, window " + std::to_string(s.window),
                   "check the model's configuration");
    const Tile tile = TileOf(type, s.head_dim);
    const int64_t tiles = (block_slots + tile.slots - 1) / tile.slots;
    const uint64_t of_all_heads = Capped(static_cast<uint64_t>(s.n_kv_heads), static_cast<uint64_t>(tiles));
    const uint64_t key_block = Capped(of_all_heads, tile.key_bytes), value_block = Capped(of_all_heads, tile.value_bytes);
    if (key_block > kMaxBytes || value_block > kMaxBytes) return TooLarge(i);
    LayerPlace p;
    p.shape = s;
    p.head_stride = static_cast<uint64_t>(tiles * tile.slots) * static_cast<uint64_t>(s.head_dim);
    p.k_offset = out.total_bytes_;
    p.v_offset = AlignUp(p.k_offset + key_block, 64);
    out.total_bytes_ = AlignUp(p.v_offset + value_block, 64);
    out.bytes_per_token_ += static_cast<uint64_t>(s.n_kv_heads) * (tile.key_bytes + tile.value_bytes) / static_cast<uint64_t>(tile.slots);
    if (out.total_bytes_ > kMaxBytes) return TooLarge(i);
    p.k_gap = static_cast<uint64_t>(tiles) * tile.key_bytes;  // what of the block is no gap, until its size is known
    p.v_gap = static_cast<uint64_t>(tiles) * tile.value_bytes;
    out.places_.push_back(p);
  }
  for (LayerPlace& p : out.places_) {
    p.k_gap = out.total_bytes_ - p.k_gap;
    p.v_gap = out.total_bytes_ - p.v_gap;
  }
  out.total_bytes_ = Capped(out.total_bytes_, static_cast<uint64_t>((capacity + block_slots - 1) / block_slots));
  if (out.total_bytes_ > kMaxBytes) return TooLarge(layers.size() - 1);
  return out;
}

uint64_t Layout::BytesRead(int64_t position) const {
  uint64_t n = 0;
  for (const LayerPlace& p : places_) {
    const Tile tile = TileOf(type_, p.shape.head_dim);
    const int64_t tiles = position / tile.slots - FirstVisible(position, p.shape.window) / tile.slots + 1;
    n += static_cast<uint64_t>(tiles) * static_cast<uint64_t>(p.shape.n_kv_heads) * (tile.key_bytes + tile.value_bytes);
  }
  return n;
}

Result<int64_t> Cursor::Advance(int64_t n) {
  if (n < 0)
    return Error(Code::kInvalidArgument, "kv cache: cannot advance by " + std::to_string(n) + " tokens", "pass a count of 0 or more");
  if (n > room())
    return Error(Code::kLimit,
                 "kv cache: " + std::to_string(n) + " more tokens do not fit: " + std::to_string(used_) + " of " +
                     std::to_string(capacity_) + " slots are in use",
                 "raise the context length or shorten the prompt");
  const int64_t at = used_;
  used_ += n;
  return at;
}

Status Cursor::Rewind(int64_t position) {
  if (position < 0 || position > used_)
    return Error(Code::kInvalidArgument,
                 "kv cache: cannot rewind to position " + std::to_string(position) + ": " + std::to_string(used_) + " slots are in use",
                 "rewind to 0 ... " + std::to_string(used_));
  used_ = position;
  return Ok();
}

Status Cursor::Take(int64_t position) {
  Cursor fresh(capacity_);
  const auto taken = fresh.Advance(position);
  if (!taken.ok()) return taken.error();
  *this = fresh;
  return Ok();
}

}  // namespace slm::kv
