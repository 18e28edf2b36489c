// Row-major codes of 4 to 6 bits, their scales and the factors of super-blocks into the packed layout (kernels/packed/contract.h).
#include <cstring>

#include "kernels/matmul_planes/contract.h"
#include "kernels/packed/pack_words.h"
#include "kernels/packed/position.h"
#include "kernels/packed/value.h"

namespace slm::kernels {
namespace {

// Codes of one row's block into its 4 bytes of the nibble lines and of the lines of higher bits.
template <PackedKind kKind>
void PackCodes(const uint8_t* q, int64_t count, int64_t block, int r, uint8_t* panel) {
  const CodeWords w = LoadCodes(q, count, ZeroPoint(kKind));
  const int64_t first = block * kBlockK;
  for (int c = 0; c < 4; ++c) PutWord(panel + NibbleOffset(kKind, r, first + c * 8), Nibbles(w.word[2 * c], w.word[2 * c + 1]));
  if (HighBits(kKind) == 0) return;
  const uint32_t mask = HighBits(kKind) == 1 ? 0x01010101u : 0x03030303u;
  for (int g = 0; g < kBlockK / 4; ++g) {  // the first group of a word writes it, the others add to it
    uint8_t* to = panel + HighOffset(kKind, r, first + g * 4);
    const int shift = HighShift(kKind, first + g * 4);
    uint32_t word = 0;
    if (shift != 0) std::memcpy(&word, to, 4);
    PutWord(to, word | (w.word[g] >> 4 & mask) << shift);
  }
}

// The scales of one row's block; `b` counts blocks of the row, `i` blocks of the operands, `super` their super-blocks.
template <PackedKind kKind>
void PackScales(const PackPlanesArgs& a, bool real, int64_t b, int64_t i, int64_t super, int r, uint8_t* panel) {
  if (LinesOf(kKind).super == 0) {
    PutHalf(panel + ScaleOffset(kKind, r, b), real ? a.scale[i] : 0.0f);
    if (HasMin(kKind)) PutHalf(panel + MinOffset(kKind, r, b), real ? a.min[i] : 0.0f);
    return;
  }
  const int n = ScalesOf(kKind);
  for (int half = 0; half < n; ++half)
    panel[SubScaleOffset(kKind, r, b, half)] = real ? static_cast<uint8_t>(a.sub_scale[i * n + half]) : uint8_t{0};
  if (HasMin(kKind)) panel[SubMinOffset(kKind, r, b)] = real ? a.sub_min[i] : uint8_t{0};
  if (b % kSuperBlocks != 0) return;
  PutHalf(panel + FactorOffset(kKind, r, b), real ? a.scale[super] : 0.0f);
  if (HasMin(kKind)) PutHalf(panel + MinFactorOffset(kKind, r, b), real ? a.min[super] : 0.0f);
}

// The kind is a constant, so that every place of a block is one, too.
template <PackedKind kKind>
void Pack(const PackPlanesArgs& args) {
  const int64_t n_blocks = (args.k + kBlockK - 1) / kBlockK, n_padded = PaddedK(args.k) / kBlockK, n_super = SuperBlocks(args.k);
  for (int64_t row = args.row_begin; row < PaddedRows(args.row_end); ++row) {
    uint8_t* panel = args.dst + row / kPanelRows * PanelBytes(kKind, args.k);
    const int r = static_cast<int>(row % kPanelRows);
    const int64_t i = row - args.row_begin;
    for (int64_t b = 0; b < n_padded; ++b) {
      const bool real = row < args.row_end && b < n_blocks;
      const int64_t left = args.k - b * kBlockK;
      PackCodes<kKind>(args.q + (real ? i * args.k + b * kBlockK : 0), real ? (left < kBlockK ? left : kBlockK) : 0, b, r, panel);
      PackScales<kKind>(args, real, b, i * n_blocks + b, i * n_super + b / kSuperBlocks, r, panel);
    }
  }
}

}  // namespace

void PackPlanes(const PackPlanesArgs& args) {
  switch (args.kind) {
    case PackedKind::kQ5: return Pack<PackedKind::kQ5>(args);
    case PackedKind::kQ5Min: return Pack<PackedKind::kQ5Min>(args);
    case PackedKind::kQ4K: return Pack<PackedKind::kQ4K>(args);
    case PackedKind::kQ5K: return Pack<PackedKind::kQ5K>(args);
    default: return Pack<PackedKind::kQ6K>(args);
  }
}

}  // namespace slm::kernels
