// What lies at W[row][k] of a panel of a quantized kind, read one value at a time: the layout's meaning for the scalar law, for
// the embedding and for tests. Value = scale * code + min.
#pragma once
#include <cstdint>

#include "base/float16.h"
#include "kernels/packed/position.h"

namespace slm::kernels {

inline float HalfAt(const uint8_t* p) { return HalfToFloat(static_cast<uint16_t>(p[0] | p[1] << 8)); }

// The code less its zero point.
inline int CodeAt(PackedKind kind, const uint8_t* panel, int r, int64_t k) {
  if (CodeLines(kind) == 16) return panel[ByteOffset(kind, r, k)] - ZeroPoint(kind);
  const int nibble = panel[NibbleOffset(kind, r, k)] >> (HighNibble(k) ? 4 : 0) & 15;
  if (HighBits(kind) == 0) return nibble - ZeroPoint(kind);
  const int high = panel[HighOffset(kind, r, k)] >> HighShift(kind, k) & ((1 << HighBits(kind)) - 1);
  return (nibble | high << 4) - ZeroPoint(kind);
}

// Scales of a block: one, or one for each half.
constexpr int ScalesOf(PackedKind kind) { return kind == PackedKind::kQ6K ? 2 : 1; }

// Half and integer have at most 11 + 7 significant bits, so the products are exact.
inline float ScaleAt(PackedKind kind, const uint8_t* panel, int r, int64_t block, int half) {
  if (LinesOf(kind).super == 0) return HalfAt(panel + ScaleOffset(kind, r, block));
  return HalfAt(panel + FactorOffset(kind, r, block)) *
         static_cast<float>(static_cast<int8_t>(panel[SubScaleOffset(kind, r, block, half)]));
}
inline float MinAt(PackedKind kind, const uint8_t* panel, int r, int64_t block) {
  if (!HasMin(kind)) return 0;
  if (LinesOf(kind).super == 0) return HalfAt(panel + MinOffset(kind, r, block));
  return HalfAt(panel + MinFactorOffset(kind, r, block)) * static_cast<float>(panel[SubMinOffset(kind, r, block)]);
}

}  // namespace slm::kernels
