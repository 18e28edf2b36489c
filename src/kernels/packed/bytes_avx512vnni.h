// The register tile over byte codes for AVX-512 VNNI: 1 to 6 tokens x 32 rows, for weights that lie as bytes (matmul_q8) and for
// panels that were spread to bytes (matmul_planes). Included by their avx512vnni.cc only; all names are internal to an object.
//
// A line of 64 weight bytes is a VPDPBUSD operand as it lies (u8 weights, s8 activations broadcast from memory); the zero point
// is paid in advance by starting every dot at -zero point * sum(a). Exactness: |sum| <= 32 * 255 * 128 fits easily, VPDPBUSD does
// not saturate; the float order is that of kernels/packed/contract.h.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/residual.h"
#include "kernels/packed/tile_zmm.h"

namespace slm::kernels {
namespace {

constexpr int kCodeBytes = 16 * kLine;

// A block of byte codes in memory is 16 lines of them, then scales: a format F says
//   kBlockBytes;  kZero, the zero point;  kParts, 1 or 2 (each half of the block has its own dot and scale);  kMin;
//   Scale(p, part, g) and Min(p, g): 16 rows of row group g, p behind the codes.

// 32 activations beside a block: of a token, or a residual of it.
struct Column {
  const int8_t* q;
  float scale;
  int32_t start[2];  // by part
  float offset;
};

template <class F>
Column ColumnOf(const ResidualEntry& e) {
  if (F::kParts == 1) return {e.q, e.scale, {e.start, 0}, e.offset};
  const int32_t first = -F::kZero * HalfSum(e.q);
  return {e.q, e.scale, {first, e.start - first}, e.offset};
}

// A block's weights in registers.
template <class F>
struct Block {
  __m512i w[8][2];                 // K group, row group
  __m512 s[F::kParts][2], low[2];  // scales, minima
  // Adds the products with column x.
  [[gnu::always_inline]] void Add(const Column& x, __m512 (&acc)[2]) const {
    const __m512 scale = _mm512_set1_ps(x.scale);
#pragma GCC unroll 2
    for (int part = 0; part < F::kParts; ++part) {
      __m512i d[2];
      d[0] = d[1] = F::kZero == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(x.start[part]);
#pragma GCC unroll 8
      for (int c = part * 8 / F::kParts; c < (part + 1) * 8 / F::kParts; ++c) {
        const __m512i v = Broadcast4(x.q + c * 4);
        d[0] = _mm512_dpbusd_epi32(d[0], w[c][0], v);
        d[1] = _mm512_dpbusd_epi32(d[1], w[c][1], v);
      }
      for (int g = 0; g < 2; ++g) acc[g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[g]), _mm512_mul_ps(scale, s[part][g]), acc[g]);
    }
    if (!F::kMin) return;
    for (int g = 0; g < 2; ++g) acc[g] = _mm512_fmadd_ps(low[g], _mm512_set1_ps(x.offset), acc[g]);
  }
};

template <class F>
[[gnu::always_inline]] inline Block<F> LoadBytes(const uint8_t* p) {
  Block<F> b;
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c)
    for (int g = 0; g < 2; ++g) b.w[c][g] = _mm512_load_si512(p + (c * 2 + g) * kLine);
  for (int g = 0; g < 2; ++g) {
    for (int part = 0; part < F::kParts; ++part) b.s[part][g] = F::Scale(p + kCodeBytes, part, g);
    b.low[g] = F::kMin ? F::Min(p + kCodeBytes, g) : b.s[0][g];
  }
  return b;
}

// Token i at block b.
template <class F>
[[gnu::always_inline]] inline Column ColumnOf(const Tokens& t, int i, int64_t b) {
  const int64_t at = i * t.n_blocks + b;
  const int32_t* start = t.start + at * F::kParts;
  return {t.a + i * t.k + b * kBlockK, t.scale[at], {start[0], start[F::kParts - 1]}, F::kMin ? t.offset[at] : 0};
}

// Adds the products of one block with its residual blocks [e, end) to their tokens' sums.
template <class F>
[[gnu::always_inline]] inline void AddResiduals(const Block<F>& block, const ResidualEntry* e, const ResidualEntry* end, float* sums) {
  for (; e != end; ++e) {
    float* sum = sums + e->token * kPanelRows;
    __m512 rest[2] = {_mm512_load_ps(sum), _mm512_load_ps(sum + 16)};
    block.Add(ColumnOf<F>(*e), rest);
    _mm512_store_ps(sum, rest[0]);
    _mm512_store_ps(sum + 16, rest[1]);
  }
}

// Sets the sums of n tokens in one panel to what their residual blocks give.
template <class F>
[[gnu::noinline]] void SumResiduals(const uint8_t* panel, const ResidualList& list, int64_t n_blocks, int n, float* sums) {
  for (int i = 0; i < n * kPanelRows; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
  for (int64_t b = 0; b < n_blocks; ++b) {
    const ResidualEntry *e = list.entries + list.begin[b], *end = list.entries + list.begin[b + 1];
    if (e == end) continue;
    const Block<F> block = LoadBytes<F>(panel + b * F::kBlockBytes);
    AddResiduals(block, e, end, sums);
  }
}

// One block (number b of the row) times kM tokens, whose codes of it begin at a. next: what is fetched with Fetch::kNextPanel.
template <class F, int kM, Fetch kFetch>
[[gnu::always_inline]] inline void AddBlock(const uint8_t* p, const Tokens& t, const int8_t* a, int64_t b, __m512 (&acc)[kM][2],
                                            const uint8_t* next) {
  const uint8_t* scales = p + kCodeBytes;
#pragma GCC unroll 2
  for (int part = 0; part < F::kParts; ++part) {
    __m512i dot[kM][2];
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i)
      dot[i][0] = dot[i][1] = F::kZero == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(t.start[(i * t.n_blocks + b) * F::kParts + part]);
#pragma GCC unroll 8
    for (int c = part * 8 / F::kParts; c < (part + 1) * 8 / F::kParts; ++c) {
      const __m512i w0 = _mm512_load_si512(p + c * 2 * kLine), w1 = _mm512_load_si512(p + (c * 2 + 1) * kLine);
      if (kFetch == Fetch::kThisPanel) FetchAhead<kM>(p + c * 2 * kLine);
      else if (c % 2 == 0) FetchNext(next + c / 2 * kLine);
#pragma GCC unroll 6
      for (int i = 0; i < kM; ++i) {
        const __m512i v = Broadcast4(a + i * t.k + c * 4);
        dot[i][0] = _mm512_dpbusd_epi32(dot[i][0], w0, v);
        dot[i][1] = _mm512_dpbusd_epi32(dot[i][1], w1, v);
      }
    }
    const __m512 s0 = F::Scale(scales, part, 0), s1 = F::Scale(scales, part, 1);
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i) {
      const __m512 scale = _mm512_set1_ps(t.scale[i * t.n_blocks + b]);
      acc[i][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][0]), _mm512_mul_ps(scale, s0), acc[i][0]);
      acc[i][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][1]), _mm512_mul_ps(scale, s1), acc[i][1]);
    }
  }
  if (!F::kMin) return;
  const __m512 m0 = F::Min(scales, 0), m1 = F::Min(scales, 1);
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    const __m512 offset = _mm512_set1_ps(t.offset[i * t.n_blocks + b]);
    acc[i][0] = _mm512_fmadd_ps(m0, offset, acc[i][0]);
    acc[i][1] = _mm512_fmadd_ps(m1, offset, acc[i][1]);
  }
}

// One panel times kM tokens, the first of them `token` of the output, beside what their residuals gave (sums).
template <class F, int kM, Fetch kFetch>
void RunTile(const uint8_t* p, const Tokens& t, int token, const float* sums, const Output& to, const uint8_t* next) {
  __m512 acc[kM][2];
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) {
    acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    to.Fetch(token + i);
  }
  const int8_t* a = t.a;
  for (int64_t b = 0; b < t.n_blocks; ++b, p += F::kBlockBytes, a += kBlockK, next += kNextLines * kLine)
    AddBlock<F, kM, kFetch>(p, t, a, b, acc, next);
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < 2; ++g) to.Store(token + i, g, _mm512_add_ps(acc[i][g], _mm512_load_ps(sums + (token + i) * kPanelRows + g * 16)));
}

// n >= 2 tokens. (TileTokens never leaves one over.)
template <class F, Fetch kFetch>
void RunTiles(const uint8_t* panel, int n, Tokens t, const float* sums, const Output& to, NextPanel ahead) {
  for (int done = 0; done < n;) {
    const int tile = TileTokens(n - done, kTile);
    const uint8_t* next = ahead.Take(t.n_blocks);
    switch (tile) {
      case 2: RunTile<F, 2, kFetch>(panel, t, done, sums, to, next); break;
      case 3: RunTile<F, 3, kFetch>(panel, t, done, sums, to, next); break;
      case 4: RunTile<F, 4, kFetch>(panel, t, done, sums, to, next); break;
      case 5: RunTile<F, 5, kFetch>(panel, t, done, sums, to, next); break;
      default: RunTile<F, 6, kFetch>(panel, t, done, sums, to, next); break;
    }
    done += tile;
    t.a += tile * t.k;
    t.scale += tile * t.n_blocks;
    t.start += tile * t.n_blocks * F::kParts;
    t.offset += tile * t.n_blocks;
  }
}

}  // namespace
}  // namespace slm::kernels
