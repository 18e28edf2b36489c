// Row-major signed 8-bit codes and their block scales into the packed layout (kernels/packed/contract.h).
#include "kernels/matmul_q8/contract.h"
#include "kernels/packed/pack_words.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

// Codes of one row's block into its 4 bytes of each of the block's eight K groups; the stored byte is code + 128.
template <PackedKind kKind>
void PackCodes(const int8_t* q, int64_t count, int64_t block, int r, uint8_t* panel) {
  const CodeWords w = LoadCodes(q, count, 0);
  for (int g = 0; g < kBlockK / 4; ++g) PutWord(panel + ByteOffset(kKind, r, block * kBlockK + g * 4), w.word[g] ^ 0x80808080u);
}

// The kind is a constant, so that every place of a block is one, too.
template <PackedKind kKind>
void Pack(const PackQ8Args& args) {
  const int64_t n_blocks = (args.k + kBlockK - 1) / kBlockK, n_padded = PaddedK(args.k) / kBlockK;
  for (int64_t row = args.row_begin; row < PaddedRows(args.row_end); ++row) {
    uint8_t* panel = args.dst + row / kPanelRows * PanelBytes(kKind, args.k);
    const int r = static_cast<int>(row % kPanelRows);
    const bool real_row = row < args.row_end;
    const int64_t i = row - args.row_begin;
    for (int64_t b = 0; b < n_padded; ++b) {
      const bool real = real_row && b < n_blocks;
      const int64_t left = args.k - b * kBlockK;
      PackCodes<kKind>(real ? args.q + i * args.k + b * kBlockK : args.q, real ? (left < kBlockK ? left : kBlockK) : 0, b, r, panel);
      PutHalf(panel + ScaleOffset(kKind, r, b), real ? args.scale[i * n_blocks + b] : 0.0f);
      if (HasMin(kKind)) PutHalf(panel + MinOffset(kKind, r, b), real ? args.min[i * n_blocks + b] : 0.0f);
    }
  }
}

}  // namespace

void PackQ8(const PackQ8Args& args) {
  if (args.kind == PackedKind::kQ8Min) Pack<PackedKind::kQ8Min>(args);
  else Pack<PackedKind::kQ8>(args);
}

}  // namespace slm::kernels
