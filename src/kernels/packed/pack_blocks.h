// What the packers of integer kinds share: the walk over the blocks of some rows, with what is padding told apart, and how a row's block
// of codes, its scale and its minimum are put into the panel.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "kernels/packed/contract.h"
#include "kernels/packed/position.h"

namespace slm::kernels {

// One block of a row: where it comes from and where it goes.
struct BlockPlace {
  const void* codes;  // one a byte
  int64_t n_codes;    // 0: the whole block is padding
  int64_t row, block;
  int64_t index;  // of the operands' blocks, [rows][ceil(k / 32)]
  int r;          // of the panel's 32 rows
  uint8_t* panel;
  bool is_real() const { return n_codes > 0; }
};

// pack(BlockPlace) for every block of rows [args.row_begin, args.row_end), and of what fills up K and the last panel. The kind is a
// constant, so that every offset in a block is one, too: a file is packed a fifth sooner. Args: see PackQ4Args.
template <PackedKind kKind, class Args, class F>
void ForEachBlock(const Args& args, const F& pack) {
  const int64_t n_blocks = (args.k + kBlockK - 1) / kBlockK, n_padded = PaddedK(args.k) / kBlockK;
  for (int64_t at = args.row_begin; at < PaddedRows(args.row_end); ++at) {
    const int64_t row = at - args.row_begin;
    uint8_t* panel = args.dst + at / kPanelRows * PanelBytes(kKind, args.k);
    for (int64_t b = 0; b < n_padded; ++b) {
      const bool is_real = at < args.row_end && b < n_blocks;
      pack(BlockPlace{.codes = is_real ? args.q + row * args.k + b * kBlockK : args.q,
                      .n_codes = is_real ? std::min<int64_t>(args.k - b * kBlockK, kBlockK) : 0,
                      .row = row,
                      .block = b,
                      .index = row * n_blocks + b,
                      .r = static_cast<int>(at % kPanelRows),
                      .panel = panel});
    }
  }
}

// The 32 codes of a block as words of four, which is how the layout stores a row. word[g]: codes 4 g ... 4 g + 3, the first in the lowest
// byte as it lies in memory.
struct CodeWords {
  uint32_t word[kBlockK / 4];
};

// What is missing of the block is filled with `fill`.
inline CodeWords LoadCodes(const BlockPlace& at, int fill) {
  CodeWords w;
  if (at.n_codes >= kBlockK) {
    std::memcpy(w.word, at.codes, kBlockK);
    return w;
  }
  uint8_t codes[kBlockK];
  std::memset(codes, fill, sizeof codes);
  if (at.is_real()) std::memcpy(codes, at.codes, static_cast<size_t>(at.n_codes));
  std::memcpy(w.word, codes, kBlockK);
  return w;
}

inline void PutWord(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

inline void PutHalf(uint8_t* p, float v) {
  const uint16_t h = FloatToHalf(v);
  p[0] = static_cast<uint8_t>(h & 0xff);
  p[1] = static_cast<uint8_t>(h >> 8);
}

// The low 4 bits of the codes into the four lines of the row's group: 8 codes (two K groups) make the row's 4 bytes of a line.
template <PackedKind kKind>
void PutNibbles(const CodeWords& w, const BlockPlace& at) {
  for (int c = 0; c < 4; ++c) {
    const uint32_t low = w.word[2 * c] & 0x0f0f0f0fu, high = w.word[2 * c + 1] & 0x0f0f0f0fu;
    PutWord(at.panel + NibbleOffset(kKind, at.r, at.block * kBlockK + c * 8), low | high << 4);
  }
}

// Scale and minimum of kinds that have them for each block.
template <PackedKind kKind, class Args>
void PutScales(const Args& args, const BlockPlace& at) {
  PutHalf(at.panel + ScaleOffset(kKind, at.r, at.block), at.is_real() ? args.scale[at.index] : 0.0f);
  if (HasMin(kKind)) PutHalf(at.panel + MinOffset(kKind, at.r, at.block), at.is_real() ? args.min[at.index] : 0.0f);
}

}  // namespace slm::kernels
