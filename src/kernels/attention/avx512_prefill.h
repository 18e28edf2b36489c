// Prefill attention in AVX-512, for any kind of cache: `Rows` widens a block of keys or values to f32 rows.
//
// The 16 lanes of a register are 16 queries of one head, so that maximum, sum and rescaling of the online softmax are plain
// vertical operations and no reduction is ever needed. A block of keys (then of values) is widened once and broadcast value by
// value from L1; two tiles of the same head are taken together to halve the broadcasts.
//
// Rows::Turn(q, D, row) may turn the queries [D][row] of a tile as the cache has turned its keys. Rows(args, kv_head) has Keys(key, n,
// block) and Values(key, n, block): rows of slots [key, key + n) to block[n][kBlockStride]. A block never passes a multiple of kBlockKeys.
// Included by ISA files only; everything has internal linkage.
#pragma once
#include "kernels/attention/avx512_lanes.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

// NQ tiles of 16 queries of one head against all keys they see.
template <int NQ, class Rows>
struct PrefillTile {
  const AttentionArgs& a;
  int head, token, token_end;
  float *qt, *ot, *s, *block;  // [D][NQ * 16], [D][NQ * 16], [kBlockKeys][NQ * 16], [kBlockKeys][kBlockStride]
  F max[NQ], sum[NQ];
  static constexpr int kRow = NQ * kLanes;

  int Clamped(int i) const { return token + i < token_end ? token + i : token_end - 1; }

  // Scaled queries, transposed. Lanes past the last token repeat it.
  void LoadQueries() {
    const F scale = Set(a.scale);
    for (int v = 0; v < NQ; ++v) {
      for (int d = 0; d < a.head_dim; d += kLanes) {
        const __mmask16 m = Left(a.head_dim - d);
        F r[16];
        for (int i = 0; i < kLanes; ++i) {
          const float* q = a.q + Clamped(v * kLanes + i) * a.q_stride + int64_t{head} * a.head_dim + d;
          r[i] = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, q), scale);
        }
        Transpose(r);
        for (int i = 0; i < kLanes && d + i < a.head_dim; ++i) Store(qt + (d + i) * kRow + v * kLanes, r[i]);
      }
    }
  }

  void StoreOutputs() {
    for (int v = 0; v < NQ; ++v) {
      const F scale = _mm512_div_ps(Set(1.0f), sum[v]);
      for (int d = 0; d < a.head_dim; d += kLanes) {
        const __mmask16 m = Left(a.head_dim - d);
        F r[16];
        for (int i = 0; i < kLanes; ++i)
          r[i] = d + i < a.head_dim ? _mm512_mul_ps(Load(ot + (d + i) * kRow + v * kLanes), scale) : _mm512_setzero_ps();
        Transpose(r);
        for (int i = 0; i < kLanes && token + v * kLanes + i < token_end; ++i) {
          float* out = a.out + (token + v * kLanes + i) * a.out_stride + int64_t{head} * a.head_dim + d;
          _mm512_mask_storeu_ps(out, m, r[i]);
        }
      }
    }
  }

  // Raw scores of keys [0, n) of the block, n rounded up to a multiple of NK (rows past n are scratch of no meaning).
  void Scores(int n) {
    constexpr int NK = NQ == 2 ? 8 : 16;
    for (int j = 0; j < n; j += NK) {
      F acc[NK][NQ];
      for (int k = 0; k < NK; ++k)
        for (int v = 0; v < NQ; ++v) acc[k][v] = _mm512_setzero_ps();
      const float* kp = block + j * kBlockStride;
      const float* qp = qt;
      for (int d = 0; d < a.head_dim; ++d, ++kp, qp += kRow) {
        F q[NQ];
        for (int v = 0; v < NQ; ++v) q[v] = Held(Load(qp + v * kLanes));
        for (int k = 0; k < NK; ++k) {
          const F b = Set(kp[k * kBlockStride]);
          for (int v = 0; v < NQ; ++v) acc[k][v] = Fma(b, q[v], acc[k][v]);
        }
      }
      for (int k = 0; k < NK; ++k)
        for (int v = 0; v < NQ; ++v) Store(s + (j + k) * kRow + v * kLanes, acc[k][v]);
    }
  }

  // Soft cap, mask, exponential and sum of the block's scores in place; returns the factor of what was accumulated before.
  void Softmax(int key, int n, F* rescale) {
    for (int v = 0; v < NQ; ++v) {
      const int p0 = a.position + Clamped(v * kLanes), p1 = a.position + Clamped(v * kLanes + kLanes - 1);
      const bool masked = key + n - 1 > p0 || (a.window > 0 && key < p1 - a.window + 1);
      const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      const __m512i own = _mm512_add_epi32(_mm512_set1_epi32(a.position + token + v * kLanes), lane);
      const __m512i last = _mm512_min_epi32(own, _mm512_set1_epi32(p1));
      const __m512i before = _mm512_sub_epi32(last, _mm512_set1_epi32(a.window > 0 ? a.window : INT32_MAX));
      float* sv = s + v * kLanes;
      F top = max[v];
      for (int j = 0; j < n; ++j) {
        F x = Checked(Load(sv + j * kRow));
        if (a.softcap > 0) x = Capped(x, a.softcap);
        if (masked) {
          const __m512i k = _mm512_set1_epi32(key + j);
          x = _mm512_mask_mov_ps(Set(-kInf), _mm512_mask_cmpgt_epi32_mask(_mm512_cmple_epi32_mask(k, last), k, before), x);
        }
        top = _mm512_max_ps(x, top);  // the second operand wins on NaN: the maximum stays a number, the exponential does not
        Store(sv + j * kRow, x);
      }
      // A lane that has seen no key yet has the maximum -inf; subtract 0 there instead of making NaN.
      const F shift = _mm512_mask_mov_ps(top, _mm512_cmp_ps_mask(top, Set(-kInf), _CMP_EQ_OQ), _mm512_setzero_ps());
      F total = _mm512_setzero_ps();
      for (int j = 0; j < n; ++j) {
        const F e = ExpNeg(_mm512_sub_ps(Load(sv + j * kRow), shift));
        total = _mm512_add_ps(total, e);
        Store(sv + j * kRow, e);
      }
      rescale[v] = ExpNeg(_mm512_sub_ps(max[v], shift));
      sum[v] = Fma(sum[v], rescale[v], total);
      max[v] = top;
    }
  }

  template <int ND>
  void ValueColumns(int d, int n, const F* rescale) {
    F acc[ND][NQ];
    for (int i = 0; i < ND; ++i)
      for (int v = 0; v < NQ; ++v) acc[i][v] = _mm512_mul_ps(Load(ot + (d + i) * kRow + v * kLanes), rescale[v]);
    const float *vp = block + d, *sp = s;
    for (int j = 0; j < n; ++j, vp += kBlockStride, sp += kRow) {
      F p[NQ];
      for (int v = 0; v < NQ; ++v) p[v] = Held(Load(sp + v * kLanes));
      for (int i = 0; i < ND; ++i) {
        const F b = Set(vp[i]);
        for (int v = 0; v < NQ; ++v) acc[i][v] = Fma(b, p[v], acc[i][v]);
      }
    }
    for (int i = 0; i < ND; ++i)
      for (int v = 0; v < NQ; ++v) Store(ot + (d + i) * kRow + v * kLanes, acc[i][v]);
  }

  void Run() {
    const Rows rows(a, head / (a.n_heads / a.n_kv_heads));
    LoadQueries();
    Rows::Turn(qt, a.head_dim, kRow);
    for (int v = 0; v < NQ; ++v) {
      max[v] = Set(-kInf);
      sum[v] = _mm512_setzero_ps();
    }
    for (int i = 0; i < a.head_dim * kRow; i += kLanes) Store(ot + i, _mm512_setzero_ps());
    const int p0 = a.position + token, last = a.position + token_end - 1;
    // Blocks end at multiples of kBlockKeys of the absolute slot: a query's arithmetic is the same however the prompt is cut
    // into chunks, tiles and threads.
    int n = 0;
    for (int key = a.window > 0 && p0 + 1 > a.window ? p0 + 1 - a.window : 0; key <= last; key += n) {
      n = kBlockKeys - key % kBlockKeys;
      if (n > last + 1 - key) n = last + 1 - key;
      F rescale[NQ];
      rows.Keys(key, n, block);
      Scores(n);
      Softmax(key, n, rescale);
      rows.Values(key, n, block);
      int d = 0;
      if (NQ == 1)
        for (; d + 16 <= a.head_dim; d += 16) ValueColumns<NQ == 1 ? 16 : 8>(d, n, rescale);
      for (; d < a.head_dim; d += 8) ValueColumns<8>(d, n, rescale);
    }
    StoreOutputs();
  }
};

template <int NQ, class Rows>
void RunTile(const AttentionArgs& a, int head, int token, int token_end, float* scratch) {
  float* qt = scratch;
  float* ot = qt + a.head_dim * NQ * kLanes;
  float* s = ot + a.head_dim * NQ * kLanes;
  PrefillTile<NQ, Rows> tile = {a, head, token, token_end, qt, ot, s, s + kBlockKeys * NQ * kLanes, {}, {}};
  tile.Run();
}

template <class Rows>
void PrefillItems(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  for (int64_t item = begin; item < end; ++item) {
    const PrefillItem it = PrefillItemAt(a, item);
    if (item + 1 < end && it.token_end < a.m) {  // the next item is the next tile of this head
      RunTile<2, Rows>(a, it.head, it.token, PrefillItemAt(a, ++item).token_end, scratch);
    } else {
      RunTile<1, Rows>(a, it.head, it.token, it.token_end, scratch);
    }
  }
}

}  // namespace
}  // namespace slm::kernels
