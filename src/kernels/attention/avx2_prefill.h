// Prefill attention in AVX2 with FMA, for any kind of cache: `Rows` widens a block of keys or values to f32 rows.
//
// The lanes of two registers are the 16 queries of a tile, so that maximum, sum and rescaling of the online softmax are plain
// vertical operations and no reduction is ever needed. A block of keys (then of values) is widened once and broadcast value by
// value from L1. D is a multiple of 8, so no register is ever partly filled.
//
// Rows::Turn(q, D, row) may turn the queries [D][row] of a tile as the cache has turned its keys. Rows(args, kv_head) has Keys(key, n,
// block) and Values(key, n, block): rows of slots [key, key + n) to block[n][kBlockStride]. A block never passes a multiple of kBlockKeys.
// Included by ISA files only; everything has internal linkage.
#pragma once
#include "kernels/attention/avx2_lanes.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

constexpr int kVectors = 2;  // registers of a row of 16 queries
constexpr int kRow = kVectors * kLanes;

// A tile of 16 queries of one head against all keys they see.
template <class Rows>
struct PrefillTile {
  const AttentionArgs& a;
  int head, token, token_end;
  float *qt, *ot, *s, *block;  // [D][16], [D][16], [kBlockKeys][16], [kBlockKeys][kBlockStride]
  F max[kVectors], sum[kVectors];

  int Clamped(int i) const { return token + i < token_end ? token + i : token_end - 1; }

  // Scaled queries, transposed. Lanes past the last token repeat it.
  void LoadQueries() {
    const F scale = Set(a.scale);
    for (int v = 0; v < kVectors; ++v) {
      for (int d = 0; d < a.head_dim; d += kLanes) {
        F r[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const float* q = a.q + Clamped(v * kLanes + i) * a.q_stride + int64_t{head} * a.head_dim + d;
          r[i] = _mm256_mul_ps(Load(q), scale);
        }
        Transpose(r);
        for (int i = 0; i < kLanes; ++i) Store(qt + (d + i) * kRow + v * kLanes, r[i]);
      }
    }
  }

  void StoreOutputs() {
    for (int v = 0; v < kVectors; ++v) {
      const F scale = _mm256_div_ps(Set(1.0f), sum[v]);
      for (int d = 0; d < a.head_dim; d += kLanes) {
        F r[kLanes];
        for (int i = 0; i < kLanes; ++i) r[i] = _mm256_mul_ps(Load(ot + (d + i) * kRow + v * kLanes), scale);
        Transpose(r);
        for (int i = 0; i < kLanes && token + v * kLanes + i < token_end; ++i) {
          Store(a.out + (token + v * kLanes + i) * a.out_stride + int64_t{head} * a.head_dim + d, r[i]);
        }
      }
    }
  }

  // Raw scores of keys [0, n) of the block, n rounded up to a multiple of NK (rows past n are scratch of no meaning).
  void Scores(int n) {
    constexpr int NK = 4;
    for (int j = 0; j < n; j += NK) {
      F acc[NK][kVectors];
#pragma GCC unroll 8
      for (int k = 0; k < NK; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[k][v] = _mm256_setzero_ps();
      const float* kp = block + j * kBlockStride;
      const float* qp = qt;
      for (int d = 0; d < a.head_dim; ++d, ++kp, qp += kRow) {
        F q[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) q[v] = Held(Load(qp + v * kLanes));
#pragma GCC unroll 8
        for (int k = 0; k < NK; ++k) {
          const F b = Set(kp[k * kBlockStride]);
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) acc[k][v] = Fma(b, q[v], acc[k][v]);
        }
      }
#pragma GCC unroll 8
      for (int k = 0; k < NK; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) Store(s + (j + k) * kRow + v * kLanes, acc[k][v]);
    }
  }

  // Soft cap, mask, exponential and sum of the block's scores in place; returns the factor of what was accumulated before.
  void Softmax(int key, int n, F* rescale) {
    for (int v = 0; v < kVectors; ++v) {
      const int p0 = a.position + Clamped(v * kLanes), p1 = a.position + Clamped(v * kLanes + kLanes - 1);
      const bool masked = key + n - 1 > p0 || (a.window > 0 && key < p1 - a.window + 1);
      const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      const __m256i own = _mm256_add_epi32(_mm256_set1_epi32(a.position + token + v * kLanes), lane);
      const __m256i last = _mm256_min_epi32(own, _mm256_set1_epi32(p1));
      const __m256i before = _mm256_sub_epi32(last, _mm256_set1_epi32(a.window > 0 ? a.window : INT32_MAX));
      float* sv = s + v * kLanes;
      F top = max[v];
      for (int j = 0; j < n; ++j) {
        F x = Checked(Load(sv + j * kRow));
        if (a.softcap > 0) x = Capped(x, a.softcap);
        if (masked) {
          const __m256i k = _mm256_set1_epi32(key + j);
          const __m256i see = _mm256_andnot_si256(_mm256_cmpgt_epi32(k, last), _mm256_cmpgt_epi32(k, before));
          x = _mm256_blendv_ps(Set(-kInf), x, _mm256_castsi256_ps(see));
        }
        top = _mm256_max_ps(x, top);  // the second operand wins on NaN: the maximum stays a number, the exponential does not
        Store(sv + j * kRow, x);
      }
      // A lane that has seen no key yet has the maximum -inf; subtract 0 there instead of making NaN.
      const F shift = _mm256_andnot_ps(_mm256_cmp_ps(top, Set(-kInf), _CMP_EQ_OQ), top);
      F total = _mm256_setzero_ps();
      for (int j = 0; j < n; ++j) {
        const F e = ExpNeg(_mm256_sub_ps(Load(sv + j * kRow), shift));
        total = _mm256_add_ps(total, e);
        Store(sv + j * kRow, e);
      }
      rescale[v] = ExpNeg(_mm256_sub_ps(max[v], shift));
      sum[v] = Fma(sum[v], rescale[v], total);
      max[v] = top;
    }
  }

  // Not inlined: among other code GCC 12 keeps one of the accumulators in memory, at half the speed.
  template <int ND>
  __attribute__((noinline)) void ValueColumns(int d, int n, const F* rescale) {
    F acc[ND][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < ND; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[i][v] = _mm256_mul_ps(Load(ot + (d + i) * kRow + v * kLanes), rescale[v]);
    const float *vp = block + d, *sp = s;
    for (int j = 0; j < n; ++j, vp += kBlockStride, sp += kRow) {
      F p[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) p[v] = Held(Load(sp + v * kLanes));
#pragma GCC unroll 8
      for (int i = 0; i < ND; ++i) {
        const F b = Set(vp[i]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[i][v] = Fma(b, p[v], acc[i][v]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ND; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) Store(ot + (d + i) * kRow + v * kLanes, acc[i][v]);
  }

  void Run() {
    const Rows rows(a, head / (a.n_heads / a.n_kv_heads));
    LoadQueries();
    Rows::Turn(qt, a.head_dim, kRow);
    for (int v = 0; v < kVectors; ++v) {
      max[v] = Set(-kInf);
      sum[v] = _mm256_setzero_ps();
    }
    for (int i = 0; i < a.head_dim * kRow; i += kLanes) Store(ot + i, _mm256_setzero_ps());
    const int p0 = a.position + token, last = a.position + token_end - 1;
    // Blocks end at multiples of kBlockKeys of the absolute slot: a query's arithmetic is the same however the prompt is cut
    // into chunks, tiles and threads.
    int n = 0;
    for (int key = a.window > 0 && p0 + 1 > a.window ? p0 + 1 - a.window : 0; key <= last; key += n) {
      n = kBlockKeys - key % kBlockKeys;
      if (n > last + 1 - key) n = last + 1 - key;
      F rescale[kVectors];
      rows.Keys(key, n, block);
      Scores(n);
      Softmax(key, n, rescale);
      rows.Values(key, n, block);
      for (int d = 0; d < a.head_dim; d += 4) ValueColumns<4>(d, n, rescale);
    }
    StoreOutputs();
  }
};

template <class Rows>
void PrefillItems(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  for (int64_t item = begin; item < end; ++item) {
    const PrefillItem it = PrefillItemAt(a, item);
    float *qt = scratch, *ot = qt + a.head_dim * kRow, *s = ot + a.head_dim * kRow;
    PrefillTile<Rows> tile = {a, it.head, it.token, it.token_end, qt, ot, s, s + kBlockKeys * kRow, {}, {}};
    tile.Run();
  }
}

}  // namespace
}  // namespace slm::kernels
