// Attention over an int8 KV cache, and the stores that fill it: half the bytes of f16, on the integer dot-product units.
//
// A KV head is a run of tiles of 16 slots, so that the slots of a tile are the lanes of a register and no kernel reduces one:
//   keys    f16 scale [ceil(D / 32)][16], then u8 [D / 4][16][4]: code + 128 of value (4 i + c) of slot s at [i][s][c]
//   values  f32 scale [16],               then s8 [4][D][4]:      code of value d of slot (4 i + c) at [i][d][c]
// each padded to 64 bytes. A code is round(x / scale), at most 127 in magnitude. Some channels of keys are many times larger than
// the rest (KIVI, arXiv 2402.02750) and would leave the others no codes. So keys are stored as H k, with H a Hadamard matrix of
// +1 and -1 over blocks of n = RotationSize(D) values, which spreads a large channel over its block (QuaRot, arXiv 2404.00456); a
// query is taken as H q / n, and (H q / n) . (H k) = q . k. Keys have a scale for 32 values, values have one for the head.
// A head with a value that is not finite (a key's group of 32) gets the scale NaN: attention shows it, as for f16.
//
// Decode takes queries as 16-bit codes (two bytes: 256 hi + lo, |code| <= 32512, one scale a head) and the weights
// exp(s - max) * scale of a chunk as 15-bit codes, so that only the storage rounds noticeably. Dot products are exact integers,
// the same in every tier: |q . k| over a group < 2^28, weights times codes over a chunk < 2^31. Prefill widens tiles to f32.
#pragma once
#include <stdint.h>

#include "kernels/attention/contract.h"

namespace slm::kernels {

inline constexpr int kTileSlots = 16, kKeyGroup = 32;
inline constexpr float kQuerySteps = 32512, kWeightSteps = 32767;
static_assert(int64_t{kDecodeChunk} * 127 * 32767 < int64_t{1} << 31 && kDecodeChunk % kTileSlots == 0);
static_assert(kBlockKeys % kTileSlots == 0);

// Largest power of two that divides D, at most a group: more would mix groups of different size and take the sense of their scales.
constexpr int RotationSize(int head_dim) {
  const int n = head_dim & -head_dim;
  return n < kKeyGroup ? n : kKeyGroup;
}
constexpr int KeyGroups(int head_dim) { return (head_dim + kKeyGroup - 1) / kKeyGroup; }
constexpr int64_t KeyScaleBytes(int head_dim) { return int64_t{2} * kTileSlots * KeyGroups(head_dim); }
inline constexpr int64_t kValueScaleBytes = int64_t{4} * kTileSlots;
constexpr int64_t KeyTileBytes(int head_dim) { return (KeyScaleBytes(head_dim) + int64_t{kTileSlots} * head_dim + 63) / 64 * 64; }
constexpr int64_t ValueTileBytes(int head_dim) { return (kValueScaleBytes + int64_t{kTileSlots} * head_dim + 63) / 64 * 64; }
// Bytes from one KV head to the next, given AttentionArgs::kv_head_stride.
constexpr int64_t KeyHeadBytes(int64_t kv_head_stride, int head_dim) {
  return kv_head_stride / (int64_t{kTileSlots} * head_dim) * KeyTileBytes(head_dim);
}
constexpr int64_t ValueHeadBytes(int64_t kv_head_stride, int head_dim) {
  return kv_head_stride / (int64_t{kTileSlots} * head_dim) * ValueTileBytes(head_dim);
}

// The tile of a KV head that slot `slot` lies in. Always inlined: ISA objects offer no functions.
[[gnu::always_inline]] inline const uint8_t* KeyTileOf(const AttentionArgs& a, int kv_head, int64_t slot) {
  return KeysAt(a, slot) + kv_head * KeyHeadBytes(a.kv_head_stride, a.head_dim) + slot / kTileSlots * KeyTileBytes(a.head_dim);
}
[[gnu::always_inline]] inline const uint8_t* ValueTileOf(const AttentionArgs& a, int kv_head, int64_t slot) {
  return ValuesAt(a, slot) + kv_head * ValueHeadBytes(a.kv_head_stride, a.head_dim) + slot / kTileSlots * ValueTileBytes(a.head_dim);
}

struct AttentionInt8Kernels {
  // x [D] f32 into slot `slot` of the KV head that begins at `head` (64-byte aligned). Writes the slot's own bytes only, so that
  // threads may store different slots of one tile at once. The same bits in every tier.
  void (*store_key)(const float* x, int head_dim, int64_t slot, uint8_t* head);
  void (*store_value)(const float* x, int head_dim, int64_t slot, uint8_t* head);
  // As AttentionKernels' (same items, partial results and scratch); args.kv_type is kInt8. The merge is AttentionKernels'.
  void (*prefill)(const AttentionArgs& args, int64_t begin, int64_t end, float* scratch);
  void (*decode)(const AttentionArgs& args, int64_t begin, int64_t end, float* partial, float* scratch);
  const char* name;
};
AttentionInt8Kernels AttentionInt8(Isa isa);  // best tier <= isa; pure

}  // namespace slm::kernels
