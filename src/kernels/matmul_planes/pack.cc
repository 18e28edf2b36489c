// Row-major codes of 4 to 6 bits, their scales and the factors of super-blocks into the packed layout (kernels/packed/contract.h).
#include <cstring>

#include "kernels/matmul_planes/contract.h"
#include "kernels/packed/pack_words.h"
#include "kernels/packed/position.h"
#include "kernels/packed/value.h"

namespace slm::kernels {
namespace {

// Codes of one row's block into its 4 bytes of the nibble lines and of the lines of higher bits.
void PackCodes(PackedKind kind, const uint8_t* q, int64_t count, int64_t block, int r, uint8_t* panel) {
  const CodeWords w = LoadCodes(q, count, ZeroPoint(kind));
  const int64_t first = block * kBlockK;
  for (int c = 0; c < 4; ++c) PutWord(panel + NibbleOffset(kind, r, first + c * 8), Nibbles(w.word[2 * c], w.word[2 * c + 1]));
  if (HighBits(kind) == 0) return;
  const uint32_t mask = HighBits(kind) == 1 ? 0x01010101u : 0x03030303u;
  for (int g = 0; g < kBlockK / 4; ++g) {  // the first group of a word writes it, the others add to it
    uint8_t* to = panel + HighOffset(kind, r, first + g * 4);
    const int shift = HighShift(kind, first + g * 4);
    uint32_t word = 0;
    if (shift != 0) std::memcpy(&word, to, 4);
    PutWord(to, word | (w.word[g] >> 4 & mask) << shift);
  }
}

// The scales of one row's block; `b` counts blocks of the row, `i` blocks of the operands, `super` their super-blocks.
void PackScales(const PackPlanesArgs& a, bool real, int64_t b, int64_t i, int64_t super, int r, uint8_t* panel) {
  if (LinesOf(a.kind).super == 0) {
    PutHalf(panel + ScaleOffset(a.kind, r, b), real ? a.scale[i] : 0.0f);
    if (HasMin(a.kind)) PutHalf(panel + MinOffset(a.kind, r, b), real ? a.min[i] : 0.0f);
    return;
  }
  const int n = ScalesOf(a.kind);
  for (int half = 0; half < n; ++half)
    panel[SubScaleOffset(a.kind, r, b, half)] = real ? static_cast<uint8_t>(a.sub_scale[i * n + half]) : uint8_t{0};
  if (HasMin(a.kind)) panel[SubMinOffset(a.kind, r, b)] = real ? a.sub_min[i] : uint8_t{0};
  if (b % kSuperBlocks != 0) return;
  PutHalf(panel + FactorOffset(a.kind, r, b), real ? a.scale[super] : 0.0f);
  if (HasMin(a.kind)) PutHalf(panel + MinFactorOffset(a.kind, r, b), real ? a.min[super] : 0.0f);
}

}  // namespace

void PackPlanes(const PackPlanesArgs& args) {
  const int64_t n_blocks = (args.k + kBlockK - 1) / kBlockK, n_padded = PaddedK(args.k) / kBlockK, n_super = SuperBlocks(args.k);
  for (int64_t row = args.row_begin; row < PaddedRows(args.row_end); ++row) {
    uint8_t* panel = args.dst + row / kPanelRows * PanelBytes(args.kind, args.k);
    const int r = static_cast<int>(row % kPanelRows);
    const int64_t i = row - args.row_begin;
    for (int64_t b = 0; b < n_padded; ++b) {
      const bool real = row < args.row_end && b < n_blocks;
      const int64_t left = args.k - b * kBlockK;
      PackCodes(args.kind, args.q + (real ? i * args.k + b * kBlockK : 0), real ? (left < kBlockK ? left : kBlockK) : 0, b, r, panel);
      PackScales(args, real, b, i * n_blocks + b, i * n_super + b / kSuperBlocks, r, panel);
    }
  }
}

}  // namespace slm::kernels
