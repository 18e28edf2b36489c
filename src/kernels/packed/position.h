// Where a code, scale or minimum of W[row][k] lies inside its panel: the packed layout as pure arithmetic.
//
// The packers, the scalar reference and EmbedRow read it; the vector kernels walk the same bytes line by line.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {

constexpr int CodeLines(PackedKind kind) { return LinesOf(kind).codes; }
constexpr int HighBits(PackedKind kind) { return LinesOf(kind).high / 2; }  // of a code, above the nibble
constexpr int64_t BlockBytes(PackedKind kind) { return UnitBytes(kind) / 2; }
constexpr int ElementBytes(PackedKind kind) { return kind == PackedKind::kF32 ? 4 : 2; }

// Byte offsets from the start of the panel; r: row 0..31 of the panel.
// The factors in front of the super-block that `block` lies in, and the block itself.
constexpr int64_t SuperOffset(PackedKind kind, int64_t block) {
  return block / kSuperBlocks * (kSuperBlocks * BlockBytes(kind) + LinesOf(kind).super * kLine);
}
constexpr int64_t BlockOffset(PackedKind kind, int64_t block) {
  return SuperOffset(kind, block) + LinesOf(kind).super * kLine + block % kSuperBlocks * BlockBytes(kind);
}
constexpr int64_t ScaleLine(PackedKind kind, int64_t block) {
  return BlockOffset(kind, block) + (LinesOf(kind).codes + LinesOf(kind).high) * kLine;
}
// fp16, of a block.
constexpr int64_t ScaleOffset(PackedKind kind, int r, int64_t block) { return ScaleLine(kind, block) + r * 2; }
constexpr int64_t MinOffset(PackedKind kind, int r, int64_t block) { return ScaleOffset(kind, r, block) + kLine; }
// K-quants: fp16 d and -dmin of a super-block; the integer scale of a block (kQ6K: of its half 0 or 1) and its minimum.
constexpr int64_t FactorOffset(PackedKind kind, int r, int64_t block) { return SuperOffset(kind, block) + r * 2; }
constexpr int64_t MinFactorOffset(PackedKind kind, int r, int64_t block) { return FactorOffset(kind, r, block) + kLine; }
constexpr int64_t SubScaleOffset(PackedKind kind, int r, int64_t block, int half) { return ScaleLine(kind, block) + half * kPanelRows + r; }
constexpr int64_t SubMinOffset(PackedKind kind, int r, int64_t block) { return ScaleLine(kind, block) + kPanelRows + r; }

// Kinds with nibbles: the byte that holds the low 4 bits, in its low nibble or (HighNibble) its high one.
constexpr int64_t NibbleOffset(PackedKind kind, int r, int64_t k) {
  const int64_t group = k % kBlockK / 4;
  return BlockOffset(kind, k / kBlockK) + (group / 2 * 2 + r / 16) * kLine + r % 16 * 4 + k % 4;
}
constexpr bool HighNibble(int64_t k) { return k % 8 >= 4; }
// The byte that holds the bits above the nibble, and the first of its HighBits(kind) bits.
constexpr int64_t HighOffset(PackedKind kind, int r, int64_t k) {
  const int64_t line = k % kBlockK / 4 * HighBits(kind) / 8 * 2 + r / 16;
  return BlockOffset(kind, k / kBlockK) + (CodeLines(kind) + line) * kLine + r % 16 * 4 + k % 4;
}
constexpr int HighShift(PackedKind kind, int64_t k) { return static_cast<int>(k % kBlockK / 4 * HighBits(kind) % 8); }

// 8-bit kinds.
constexpr int64_t ByteOffset(PackedKind kind, int r, int64_t k) {
  const int64_t group = k % kBlockK / 4;
  return BlockOffset(kind, k / kBlockK) + (group * 2 + r / 16) * kLine + r % 16 * 4 + k % 4;
}

// Float kinds.
constexpr int64_t ElementOffset(PackedKind kind, int r, int64_t k) { return (k * kPanelRows + r) * ElementBytes(kind); }

// One past the highest code.
constexpr int CodeCount(PackedKind kind) { return CodeLines(kind) == 16 ? 256 : 16 << HighBits(kind); }

}  // namespace slm::kernels
