// The tile of quantized matmuls for SDOT: 1 to 4 tokens x 32 rows, 16 rows of integer sums at a time.
//
// A line of the packed layout holds four SDOT operands (4 rows x 4 K each) as they lie, and a lane of 16 activations is the other
// operand, so nothing is shuffled. 16 integer sums, 4 activations and the weights at hand fill 24 of 32 registers; the float sums
// of more than one token live in L1 beside them. Integer dots are exact, the float order is that of kernels/packed/contract.h.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include "kernels/packed/panel_neon.h"

namespace slm::kernels {
namespace {

constexpr int kDotTile = 4;

// K groups 2 c and 2 c + 1 of row group g: lanes kLane and kLane + 1 of the activations.
template <class Format, int kM, int kLane>
[[gnu::always_inline]] inline void AddDots(const uint8_t* panel, int64_t b, int c, int g, const int8x16_t (&x)[kM],
                                           int32x4_t (&dot)[kM][4]) {
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const Groups w = Format::Load(panel, b, c, g * 4 + r);
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) dot[i][r] = vdotq_laneq_s32(dot[i][r], w.even, x[i], kLane);
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) dot[i][r] = vdotq_laneq_s32(dot[i][r], w.odd, x[i], kLane + 1);
  }
}

// Block b of row group g times kM tokens.
template <class Format, int kM>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* panel, const Tokens& t, int64_t b, int g, float32x4_t (&acc)[kM][kVectors]) {
#pragma GCC unroll 2
  for (int part = 0; part < Format::kParts; ++part) {
    int32x4_t dot[kM][4];
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) dot[i][0] = dot[i][1] = dot[i][2] = dot[i][3] = vdupq_n_s32(StartOf<Format>(t, i, b));
#pragma GCC unroll 2
    for (int h = part; h < part + 2 / Format::kParts; ++h) {
      int8x16_t x[kM];
#pragma GCC unroll 4
      for (int i = 0; i < kM; ++i) x[i] = vld1q_s8(t.a + i * t.k + b * kBlockK + h * 16);
      AddDots<Format, kM, 0>(panel, b, h * 2, g, x, dot);
      AddDots<Format, kM, 2>(panel, b, h * 2 + 1, g, x, dot);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const int v = g * 4 + r;
      const float32x4_t scale = Format::Scale(panel, b, part, v), lowest = Minima<Format>(panel, b, v);
#pragma GCC unroll 4
      for (int i = 0; i < kM; ++i) {
        const int64_t at = i * t.n_blocks + b;
        acc[i][v] = Folded<Format>(acc[i][v], dot[i][r], t.scale[at], Format::kMin ? t.offset[at] : 0, scale, lowest);
      }
    }
  }
}

template <class Format>
struct DotTile {
  template <int kM>
  static void RunSome(const uint8_t* panel, const Tokens& t, float* sums) {
    float32x4_t acc[kM][kVectors];
    for (int i = 0; i < kM; ++i)
      for (int v = 0; v < kVectors; ++v) acc[i][v] = vdupq_n_f32(0);
    for (int64_t b = 0; b < t.n_blocks; ++b) {
      if constexpr (kM == 1) {  // all float sums in registers
        AddBlock<Format, kM>(panel, t, b, 0, acc);
        AddBlock<Format, kM>(panel, t, b, 1, acc);
      } else {
        for (int g = 0; g < 2; ++g) {
          asm volatile("" : "+r"(g));  // else GCC joins the halves, and their sums do not fit the registers
          AddBlock<Format, kM>(panel, t, b, g, acc);
        }
      }
    }
    AddTo<kM>(sums, acc);
  }
  static void Run(const uint8_t* panel, int n, const Tokens& all, float* sums) {
    for (int done = 0; done < n;) {
      const Tokens t = From(all, done);
      float* to = sums + done * kPanelRows;
      const int tile = TileTokens(n - done, kDotTile);
      switch (tile) {
        case 1: RunSome<1>(panel, t, to); break;
        case 2: RunSome<2>(panel, t, to); break;
        case 3: RunSome<3>(panel, t, to); break;
        default: RunSome<4>(panel, t, to); break;
      }
      done += tile;
    }
  }
};

}  // namespace
}  // namespace slm::kernels
