// The register tile over panels that were spread to bytes, for AVX2: 2 to 4 tokens x 32 rows. Included by avx2.cc only; all names are
// internal to an object. The float order is that of kernels/packed/contract.h.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/prefetch.h"
#include "kernels/packed/residual.h"
#include "kernels/packed/tile_ymm.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 4;
constexpr int kCodeBytes = 16 * kLine;

// A block of byte codes in memory is 16 lines of them, then scales: a format F says
//   kBlockBytes;  kParts, 1 or 2 (each half of the block has its own dot and scale);  kMin;
//   Scale(p, part, v), Min(p, v): 8 rows, v of 4, p behind the codes;
//   Dot(p, t, a, b, g, part, dot): kM tokens times the 16 rows of row group g;
//   DotOne(codes of the 8 K groups, q, part, start): 8 rows times one residual.

// The block's dots of row group g (two vectors of 8 rows) into the float accumulators, in the order of the contract.
template <class F, int kM>
void Fold(const uint8_t* scales, const Tokens& t, int64_t b, int g, int part, const __m256i (&dot)[kM][2], __m256 (&acc)[kM][4]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256 s = F::Scale(scales, part, g * 2 + h);
    const bool low = F::kMin && part == F::kParts - 1;
    const __m256 lowest = low ? F::Min(scales, g * 2 + h) : s;
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) {
      const __m256 x = _mm256_set1_ps(t.scale[i * t.n_blocks + b]);
      __m256 v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i][h]), _mm256_mul_ps(x, s), acc[i][g * 2 + h]);
      if (low) v = _mm256_fmadd_ps(lowest, _mm256_set1_ps(t.offset[i * t.n_blocks + b]), v);
      acc[i][g * 2 + h] = v;
    }
  }
}

// One block (number b of the row) times kM tokens, whose codes of it begin at a.
template <class F, int kM>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* p, const Tokens& t, const int8_t* a, int64_t b, __m256 (&acc)[kM][4]) {
  for (int g = 0; g < 2; ++g)
    for (int part = 0; part < F::kParts; ++part) {
      asm volatile("" ::: "memory");  // else GCC keeps the broadcasts of the first half for the second and spills all 32
      __m256i dot[kM][2];
      F::template Dot<kM>(p, t, a, b, g, part, dot);
      Fold<F, kM>(p + kCodeBytes, t, b, g, part, dot, acc);
    }
}

// Adds the products of kM tokens to their sums.
template <class F, int kM>
void RunTile(const uint8_t* p, const Tokens& t, float* sums) {
  __m256 acc[kM][4];
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 4; ++g) acc[i][g] = _mm256_setzero_ps();
  const int8_t* a = t.a;
  for (int64_t b = 0; b < t.n_blocks; ++b) {
    for (int line = 0; line < kCodeBytes; line += 2 * kLine) FetchAhead<kM>(p + line);
    AddBlock<F, kM>(p, t, a, b, acc);
    p += F::kBlockBytes;
    a += kBlockK;
  }
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 4; ++g) {
      float* sum = sums + i * kPanelRows + g * 8;
      _mm256_store_ps(sum, _mm256_add_ps(acc[i][g], _mm256_load_ps(sum)));
    }
}

template <class F>
void RunTiles(const uint8_t* panel, int n, Tokens t, float* sums) {
  for (int done = 0; done < n;) {
    const int tile = TileTokens(n - done, kTile);
    switch (tile) {
      case 2: RunTile<F, 2>(panel, t, sums + done * kPanelRows); break;
      case 3: RunTile<F, 3>(panel, t, sums + done * kPanelRows); break;
      default: RunTile<F, 4>(panel, t, sums + done * kPanelRows); break;
    }
    done += tile;
    t.a += tile * t.k;
    t.scale += tile * t.n_blocks;
    t.start += tile * t.n_blocks * F::kParts;
    t.offset += tile * t.n_blocks;
  }
}

// Adds what the residual blocks [first, end) of one block at p give to their tokens' sums, 8 rows (v of 4) at a time.
template <class F>
void AddResiduals(const uint8_t* p, const ResidualEntry* first, const ResidualEntry* end, float* sums) {
  const uint8_t* scales = p + kCodeBytes;
  for (int v = 0; v < 4; ++v) {
    __m256i w[8];  // by K group
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) w[c] = Codes(p + c * 2 * kLine + v * 32);
    for (const ResidualEntry* e = first; e != end; ++e) {
      float* sum = sums + e->token * kPanelRows + v * 8;
      __m256 y = _mm256_load_ps(sum);
      int32_t start[2] = {F::kParts == 2 ? -F::kZero * HalfSum(e->q) : e->start, e->start};
      start[1] -= start[0];
      for (int part = 0; part < F::kParts; ++part) {
        const __m256i dot = F::DotOne(w, e->q, part, start[part]);
        y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(_mm256_set1_ps(e->scale), F::Scale(scales, part, v)), y);
      }
      if (F::kMin) y = _mm256_fmadd_ps(F::Min(scales, v), _mm256_set1_ps(e->offset), y);
      _mm256_store_ps(sum, y);
    }
  }
}

// Sets the sums of n tokens in one panel to what their residual blocks give.
template <class F>
[[gnu::noinline]] void SumResiduals(const uint8_t* panel, const ResidualList& list, int64_t n_blocks, int n, float* sums) {
  for (int i = 0; i < n * kPanelRows; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
  for (int64_t b = 0; b < n_blocks; ++b) {
    const ResidualEntry *first = list.entries + list.begin[b], *end = list.entries + list.begin[b + 1];
    if (first != end) AddResiduals<F>(panel + b * F::kBlockBytes, first, end, sums);
  }
}

}  // namespace
}  // namespace slm::kernels
