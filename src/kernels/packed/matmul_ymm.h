// The quantized matmul in 256-bit registers: one register tile for 4- and 8-bit weights, parameterised by the step that multiplies.
//
// A Step says how a vector of weights is read and how four K of it meet four activations, so that AVX2 (VPMADDUBSW) and AVX-VNNI
// (VPDPBUSD) are a few lines each, in kernels/matmul_q4 and matmul_q8:
//   Weights                              what Load returns: 8 rows x 4 K ready to be multiplied
//   kBits                                of a code
//   ZeroPoint<kMin>()                    what End or Begin must be paid for in `start`; 0: nothing
//   Load(block, c, v) -> Weights         K group c (0..7) of the block at `block`, rows 8 v to 8 v + 7
//   Begin(start), Add(sum, w, x), End(sum, start)   the sum of one block, in whatever lanes; End gives 8 x int32
// A tile is up to 4 tokens x 16 rows of integer sums; the float sums of all 32 rows live in L1 beside it. A token alone (decode)
// takes its residual blocks in passing. Float order: kernels/packed/contract.h.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/contract.h"
#include "kernels/packed/prefetch.h"
#include "kernels/packed/residual.h"
#include "kernels/packed/tile_ymm.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 4;  // 8 integer accumulators + 4 activations + weights, masks, product = 16 registers
template <class Step>
constexpr int kCodeBytes = 2 * Step::kBits* kLine;
template <class Step, bool kMin>
constexpr int kBlockBytes = kCodeBytes<Step> + (kMin ? 2 : 1) * kLine;

// The block's dots of row group g (two vectors of 8 rows) into the float accumulators, in the order of the contract.
template <bool kMin, int kM, class Columns>
void Fold(const uint8_t* scales, const Columns& x, int g, const __m256i (&dot)[kM][2], __m256 (*acc)[4]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256 s = Halfs(scales + (g * 2 + h) * 16);
    const __m256 lowest = kMin ? Halfs(scales + kLine + (g * 2 + h) * 16) : s;
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) {
      __m256 v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i][h]), _mm256_mul_ps(_mm256_set1_ps(x.Scale(i)), s), acc[i][g * 2 + h]);
      if (kMin) v = _mm256_fmadd_ps(lowest, _mm256_set1_ps(x.Offset(i)), v);
      acc[i][g * 2 + h] = v;
    }
  }
}

// Adds one block's products to the sums of kM columns; kFetch chooses how far ahead weights are fetched.
template <class Step, bool kMin, int kM, int kFetch, class Columns>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* p, const Columns& x, __m256 (*acc)[4]) {
  constexpr bool kPaid = Step::template ZeroPoint<kMin>() != 0;
  for (int line = 0; line < kCodeBytes<Step>; line += 2 * kLine) FetchAhead<kFetch>(p + line);
  for (int g = 0; g < 2; ++g) {
    asm volatile("" ::: "memory");  // else GCC keeps the broadcasts of the first half for the second and spills all 32
    __m256i dot[kM][2];
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) dot[i][0] = dot[i][1] = Step::Begin(kPaid ? x.Start(i) : 0);
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      const typename Step::Weights w[2] = {Step::Load(p, c, g * 2), Step::Load(p, c, g * 2 + 1)};
#pragma GCC unroll 4
      for (int i = 0; i < kM; ++i) {
        const __m256i v = Broadcast4(x.Codes(i) + c * 4);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          dot[i][h] = Step::Add(dot[i][h], w[h], v);
          Pin(dot[i][h]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i)
      for (int h = 0; h < 2; ++h) dot[i][h] = Step::End(dot[i][h], kPaid ? x.Start(i) : 0);
    Fold<kMin, kM>(p + kCodeBytes<Step>, x, g, dot, acc);
  }
}

// One panel times kM tokens, added to their sums.
template <class Step, bool kMin, int kM>
void RunTile(const uint8_t* p, const Tokens& t, float* sums) {
  __m256 acc[kM][4];
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 4; ++g) acc[i][g] = _mm256_setzero_ps();
  const int8_t* a = t.a;
  for (int64_t b = 0; b < t.n_blocks; ++b) {
    AddBlock<Step, kMin, kM, kM>(p, TokenColumns{t, a, b}, acc);
    p += kBlockBytes<Step, kMin>;
    a += kBlockK;
  }
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 4; ++g) {
      float* sum = sums + i * kPanelRows + g * 8;
      _mm256_store_ps(sum, _mm256_add_ps(acc[i][g], _mm256_load_ps(sum)));
    }
}

// One panel times a token alone, with its residuals in passing: a walk of their own would read the weights from memory twice
// and out of order (measured on a model whose head has 178 MB: 34 tokens a second instead of 91).
template <class Step, bool kMin>
void RunOne(const uint8_t* p, const Tokens& t, const ResidualBlock* r, const ResidualBlock* end, float* sums) {
  __m256 acc[2][4];  // of the token, of its residuals
  for (int g = 0; g < 4; ++g) acc[0][g] = acc[1][g] = _mm256_setzero_ps();
  const int8_t* a = t.a;
  int64_t next = r != end ? r->block : -1;
  for (int64_t b = 0; b < t.n_blocks; ++b) {
    if (b == next) {
      AddBlock<Step, kMin, 2, 1>(p, ResidualColumns{{t, a, b}, EntryOf(*r, Step::template ZeroPoint<kMin>(), 0)}, acc);
      next = ++r != end ? r->block : -1;
    } else {
      AddBlock<Step, kMin, 1, 1>(p, TokenColumns{t, a, b}, acc);
    }
    p += kBlockBytes<Step, kMin>;
    a += kBlockK;
  }
  for (int g = 0; g < 4; ++g) _mm256_store_ps(sums + g * 8, _mm256_add_ps(acc[0][g], acc[1][g]));
}

// n >= 2 tokens. (TileTokens never leaves one over.)
template <class Step, bool kMin>
void RunTiles(const uint8_t* panel, int n, Tokens t, float* sums) {
  for (int done = 0; done < n;) {
    const int tile = TileTokens(n - done, kTile);
    switch (tile) {
      case 2: RunTile<Step, kMin, 2>(panel, t, sums + done * kPanelRows); break;
      case 3: RunTile<Step, kMin, 3>(panel, t, sums + done * kPanelRows); break;
      default: RunTile<Step, kMin, 4>(panel, t, sums + done * kPanelRows); break;
    }
    done += tile;
    t.a += tile * t.k;
    t.scale += tile * t.n_blocks;
    t.start += tile * t.n_blocks;
    t.offset += tile * t.n_blocks;
  }
}

// Sets the sums of n tokens in one panel to what their residual blocks give, 8 rows (v of 4) at a time.
template <class Step, bool kMin>
[[gnu::noinline]] void SumResiduals(const uint8_t* panel, const ResidualList& list, int64_t n_blocks, int n, float* sums) {
  for (int i = 0; i < n * kPanelRows; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  for (int64_t b = 0; b < n_blocks; ++b) {
    const ResidualEntry *first = list.entries + list.begin[b], *end = list.entries + list.begin[b + 1];
    if (first == end) continue;
    const uint8_t *p = panel + b * kBlockBytes<Step, kMin>, *scales = p + kCodeBytes<Step>;
    for (int v = 0; v < 4; ++v) {
      typename Step::Weights w[8];  // by K group
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) w[c] = Step::Load(p, c, v);
      const __m256 s = Halfs(scales + v * 16), lowest = kMin ? Halfs(scales + kLine + v * 16) : s;
      for (const ResidualEntry* e = first; e != end; ++e) {
        __m256i dot = Step::Begin(e->start);
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) dot = Step::Add(dot, w[c], Broadcast4(e->q + c * 4));
        dot = Step::End(dot, e->start);
        float* sum = sums + e->token * kPanelRows + v * 8;
        __m256 y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(_mm256_set1_ps(e->scale), s), _mm256_load_ps(sum));
        if (kMin) y = _mm256_fmadd_ps(lowest, _mm256_set1_ps(e->offset), y);
        _mm256_store_ps(sum, y);
      }
    }
  }
}

// Tokens are taken kTokenBlock at a time, so that their activations stay in L2 while the panels stream by. What the tiles would
// otherwise recompute per panel (start, offset) is made once per token and block, in scratch.
template <class Step, bool kMin>
void MatMulYmm(const MatMulArgs& args) {
  constexpr int kZeroPoint = Step::template ZeroPoint<kMin>();
  alignas(kLine) float sums[kTokenBlock * kPanelRows];
  const int64_t n_blocks = args.k / kBlockK;
  int32_t* start = reinterpret_cast<int32_t*>(args.scratch);
  float* offset = reinterpret_cast<float*>(args.scratch) + kTokenBlock * n_blocks;
  for (int64_t first = 0; first < args.m; first += kTokenBlock) {
    const int n = static_cast<int>(args.m - first < kTokenBlock ? args.m - first : kTokenBlock);
    const float* scale = args.a_scale + first * n_blocks;
    const int32_t* sum = args.a_sum + first * n_blocks;
    for (int64_t i = 0; i < n * n_blocks; ++i) {
      if (kZeroPoint != 0) start[i] = -kZeroPoint * sum[i];
      if (kMin) offset[i] = scale[i] * static_cast<float>(sum[i]);
    }
    const Tokens t{args.a + first * args.k, scale, start, offset, args.k, n_blocks};
    ResidualList residuals{};
    if (n > 1) residuals = ListResiduals(args, kZeroPoint, first, n, args.scratch + ListOffset(n_blocks));
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      const uint8_t* panel = args.w + p * args.panel_bytes;
      if (n == 1) {
        RunOne<Step, kMin>(panel, t, ResidualsBegin(args, first), ResidualsEnd(args, first), sums);
      } else {
        SumResiduals<Step, kMin>(panel, residuals, n_blocks, n, sums);
        RunTiles<Step, kMin>(panel, n, t, sums);
      }
      StoreSums(args, p * kPanelRows, first, n, sums);
    }
  }
}

}  // namespace
}  // namespace slm::kernels
