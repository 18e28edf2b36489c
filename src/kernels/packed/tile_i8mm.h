// The tile of quantized matmuls for SMMLA: 1 to 4 pairs of tokens x 32 rows, 8 rows of integer sums at a time.
//
// SMMLA multiplies 2 rows x 8 K by 8 K x 2 tokens. Two neighbouring K groups of 4 rows, zipped by 32 bits, are two such operands;
// the activations of a pair, zipped by 64 bits, are the other. Per 8 rows and 32 K that is 32 shuffles and 64 SMMLA for 8 tokens, where
// SDOT takes 128 dots: worth it from two tokens on. One token alone is the dot tile's. 16 integer sums, 8 activations and the
// weights at hand fill the registers; float sums live in L1. Dots are exact, the float order is that of kernels/packed/contract.h.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include "kernels/packed/panel_neon.h"

namespace slm::kernels {
namespace {

constexpr int kPairTile = 4;

// Two int32 twice: what both rows of a 2 x 2 result start at.
inline int32x4_t Both(int32_t token0, int32_t token1) {
  const int32x2_t pair = vset_lane_s32(token1, vdup_n_s32(token0), 1);
  return vcombine_s32(pair, pair);
}
inline int8x16_t ZipLow64(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
inline int8x16_t ZipHigh64(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

// Rows 0, 1 and rows 2, 3 of a vector, 8 K each.
struct RowPairs {
  int8x16_t first, second;
  explicit RowPairs(const Groups& w)
      : first(vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(w.even), vreinterpretq_s32_s8(w.odd)))),
        second(vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(w.even), vreinterpretq_s32_s8(w.odd)))) {}
};

// kPairs pairs of tokens; the last may be half: `last` is the last token, taken twice then.
template <class Format, int kPairs>
struct PairTile {
  const Tokens& t;
  int64_t last;
  float32x4_t acc[2 * kPairs][kVectors];

  int64_t Token(int i) const { return i == 2 * kPairs - 1 ? last : i; }

  // Part `part` of block b times rows 4 v to 4 v + 7.
  void AddPart(const uint8_t* panel, int64_t b, int part, int v) {
    int32x4_t dot[kPairs][4];  // pair of tokens, pair of rows
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i)
      dot[i][0] = dot[i][1] = dot[i][2] = dot[i][3] = Both(StartOf<Format>(t, 2 * i, b), StartOf<Format>(t, Token(2 * i + 1), b));
#pragma GCC unroll 2
    for (int h = part; h < part + 2 / Format::kParts; ++h) {
      int8x16_t x[2][kPairs];  // 8 K, pair
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) {
        const int8_t* a = t.a + b * kBlockK + h * 16;
        const int8x16_t x0 = vld1q_s8(a + 2 * i * t.k), x1 = vld1q_s8(a + Token(2 * i + 1) * t.k);
        x[0][i] = ZipLow64(x0, x1);
        x[1][i] = ZipHigh64(x0, x1);
      }
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          const RowPairs w(Format::Load(panel, b, h * 2 + c, v + j));
#pragma GCC unroll 4
          for (int i = 0; i < kPairs; ++i) {
            dot[i][2 * j] = vmmlaq_s32(dot[i][2 * j], w.first, x[c][i]);
            dot[i][2 * j + 1] = vmmlaq_s32(dot[i][2 * j + 1], w.second, x[c][i]);
          }
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const float32x4_t scale = Format::Scale(panel, b, part, v + j), lowest = Minima<Format>(panel, b, v + j);
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) {
        Fold(2 * i, v + j, b, vuzp1q_s32(dot[i][2 * j], dot[i][2 * j + 1]), scale, lowest);
        Fold(2 * i + 1, v + j, b, vuzp2q_s32(dot[i][2 * j], dot[i][2 * j + 1]), scale, lowest);
      }
    }
  }
  void Fold(int i, int v, int64_t b, int32x4_t dot, float32x4_t scale, float32x4_t lowest) {
    const int64_t at = Token(i) * t.n_blocks + b;
    acc[i][v] = Folded<Format>(acc[i][v], dot, t.scale[at], Format::kMin ? t.offset[at] : 0, scale, lowest);
  }

  void Run(const uint8_t* panel, float* sums) {
    for (auto& token : acc)
      for (float32x4_t& x : token) x = vdupq_n_f32(0);
    for (int64_t b = 0; b < t.n_blocks; ++b)
#pragma GCC unroll 1  // joined steps would have more sums than registers
      for (int v = 0; v < kVectors; v += 2)
        for (int part = 0; part < Format::kParts; ++part) AddPart(panel, b, part, v);
    AddTo<2 * kPairs>(sums, acc);
  }
};

template <class Format>
struct PairTiles {
  static void Run(const uint8_t* panel, int n, const Tokens& all, float* sums) {
    for (int done = 0; done < n;) {
      const Tokens t = From(all, done);
      float* to = sums + done * kPanelRows;
      const int pairs = TileTokens((n - done + 1) / 2, kPairTile);
      const int64_t last = n - done < 2 * pairs ? 2 * pairs - 2 : 2 * pairs - 1;
      switch (pairs) {
        case 1: PairTile<Format, 1>{t, last, {}}.Run(panel, to); break;
        case 2: PairTile<Format, 2>{t, last, {}}.Run(panel, to); break;
        case 3: PairTile<Format, 3>{t, last, {}}.Run(panel, to); break;
        default: PairTile<Format, 4>{t, last, {}}.Run(panel, to); break;
      }
      done += 2 * pairs;
    }
  }
};

}  // namespace
}  // namespace slm::kernels
