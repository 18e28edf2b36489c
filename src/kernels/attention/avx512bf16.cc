// Prefill attention over an f16 cache on the bf16 dot products of AVX-512 (two products a lane): what of attention is products takes half
// the time, a third of a long prompt's.
//
// Queries, keys, weights and values are rounded to bf16 (2^-9 relative each), sums are f32, the softmax is that of avx512_prefill.h.
// Calls of fewer than kWideTokens tokens, caches of f32 and decode stay with the f32 kernels of avx512vnni.cc.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/attention/avx512_prefill.h"
#include "kernels/attention/contract.h"
#include "kernels/packed/contract.h"

namespace slm::kernels {

extern const AttentionKernels kAttentionAvx512Vnni;

namespace {

// 16 lanes of pairs {low, high}.
inline __m512i Pairs(F low, F high) {
  const __m512i order = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
                                          0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}
inline void StorePairs(uint32_t* p, __m512i v) { _mm512_storeu_si512(p, v); }
inline __m512i LoadPairs(const uint32_t* p) { return _mm512_loadu_si512(p); }
inline __m512i HeldPairs(__m512i v) {
  __asm__("" : "+v"(v));
  return v;
}
inline F Dots(F sum, __m512i a, uint32_t b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(b))));
}

// A cache row as f32, zeros past the head.
inline F LoadHalfs(const uint16_t* p, int left) {
  const __m256i h = left >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)) : _mm256_maskz_loadu_epi16(Left(left), p);
  return _mm512_cvtph_ps(h);
}

struct HalfRows {  // for the parts of PrefillTile that are used here
  HalfRows(const AttentionArgs&, int) {}
};

constexpr int kKeyStride = 136;  // pairs: a row of 256 values, and off the multiples of 4 KiB
constexpr int kPairRows = kBlockKeys / 2 + 1;

template <int NQ>
struct PairTile : PrefillTile<NQ, HalfRows> {
  using Base = PrefillTile<NQ, HalfRows>;
  using Base::a, Base::kRow, Base::ot, Base::s, Base::max, Base::sum;
  uint32_t *qp, *weights, *rows;  // [D / 2][NQ * 16], [kPairRows][NQ * 16], keys [64][kKeyStride] or values [kPairRows][kBlockStride]
  const uint16_t *k, *v;

  void Keys(int key, int n) const {
    const uint16_t* from =
        reinterpret_cast<const uint16_t*>(KeysAt(a, key)) + (k - static_cast<const uint16_t*>(a.k)) + int64_t{key} * a.head_dim;
    for (int j = 0; j < n; ++j, from += a.head_dim)
      for (int d = 0; d < a.head_dim; d += kLanes)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + j * kKeyStride + d / 2),
                            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(LoadHalfs(from + d, a.head_dim - d))));
  }
  // Pairs of rows of even and odd slots; `lead` is 1 when the first slot is odd. What is missing from a pair is 0.
  void Values(int key, int n, int lead) const {
    const uint16_t* from =
        reinterpret_cast<const uint16_t*>(ValuesAt(a, key)) + (v - static_cast<const uint16_t*>(a.v)) + int64_t{key} * a.head_dim;
    for (int p = 0; 2 * p - lead < n; ++p) {
      const int low = 2 * p - lead, high = low + 1;
      for (int d = 0; d < a.head_dim; d += kLanes) {
        const F x = low >= 0 ? LoadHalfs(from + low * a.head_dim + d, a.head_dim - d) : _mm512_setzero_ps();
        const F y = high < n ? LoadHalfs(from + high * a.head_dim + d, a.head_dim - d) : _mm512_setzero_ps();
        StorePairs(rows + p * kBlockStride + d, Pairs(x, y));
      }
    }
  }
  void Weights(int n, int lead) const {
    for (int p = 0; 2 * p - lead < n; ++p) {
      const int low = 2 * p - lead, high = low + 1;
      for (int i = 0; i < kRow; i += kLanes) {
        const F x = low >= 0 ? Load(s + low * kRow + i) : _mm512_setzero_ps(),
                y = high < n ? Load(s + high * kRow + i) : _mm512_setzero_ps();
        StorePairs(weights + p * kRow + i, Pairs(x, y));
      }
    }
  }

  void Scores(int n) const {
    constexpr int NK = NQ == 2 ? 8 : 16;
    for (int j = 0; j < n; j += NK) {
      F acc[NK][NQ];
      for (int i = 0; i < NK; ++i)
        for (int x = 0; x < NQ; ++x) acc[i][x] = _mm512_setzero_ps();
      const uint32_t *kp = rows + j * kKeyStride, *q = qp;
      for (int d = 0; d < a.head_dim / 2; ++d, ++kp, q += kRow) {
        __m512i pairs[NQ];
        for (int x = 0; x < NQ; ++x) pairs[x] = HeldPairs(LoadPairs(q + x * kLanes));
        for (int i = 0; i < NK; ++i)
          for (int x = 0; x < NQ; ++x) acc[i][x] = Dots(acc[i][x], pairs[x], kp[i * kKeyStride]);
      }
      for (int i = 0; i < NK; ++i)
        for (int x = 0; x < NQ; ++x) Store(s + (j + i) * kRow + x * kLanes, acc[i][x]);
    }
  }

  void ValueColumns(int d, int pairs, const F* rescale) const {
    constexpr int ND = 8;
    F acc[ND][NQ];
    for (int i = 0; i < ND; ++i)
      for (int x = 0; x < NQ; ++x) acc[i][x] = _mm512_mul_ps(Load(ot + (d + i) * kRow + x * kLanes), rescale[x]);
    const uint32_t *vp = rows + d, *w = weights;
    for (int p = 0; p < pairs; ++p, vp += kBlockStride, w += kRow) {
      __m512i q[NQ];
      for (int x = 0; x < NQ; ++x) q[x] = HeldPairs(LoadPairs(w + x * kLanes));
      for (int i = 0; i < ND; ++i)
        for (int x = 0; x < NQ; ++x) acc[i][x] = Dots(acc[i][x], q[x], vp[i]);
    }
    for (int i = 0; i < ND; ++i)
      for (int x = 0; x < NQ; ++x) Store(ot + (d + i) * kRow + x * kLanes, acc[i][x]);
  }

  void Run() {
    this->LoadQueries();
    for (int d = 0; d < a.head_dim / 2; ++d)
      for (int i = 0; i < kRow; i += kLanes)
        StorePairs(qp + d * kRow + i, Pairs(Load(this->qt + 2 * d * kRow + i), Load(this->qt + (2 * d + 1) * kRow + i)));
    for (int x = 0; x < NQ; ++x) {
      max[x] = Set(-kInf);
      sum[x] = _mm512_setzero_ps();
    }
    for (int i = 0; i < a.head_dim * kRow; i += kLanes) Store(ot + i, _mm512_setzero_ps());
    const int p0 = a.position + this->token, last = a.position + this->token_end - 1;
    int n = 0;
    for (int key = a.window > 0 && p0 + 1 > a.window ? p0 + 1 - a.window : 0; key <= last; key += n) {
      n = kBlockKeys - key % kBlockKeys;
      if (n > last + 1 - key) n = last + 1 - key;
      const int lead = key & 1;  // pairs lie at even slots, however the prompt is cut
      F rescale[NQ];
      Keys(key, n);
      Scores(n);
      this->Softmax(key, n, rescale);
      Weights(n, lead);
      Values(key, n, lead);
      for (int d = 0; d < a.head_dim; d += 8) ValueColumns(d, (n + lead + 1) / 2, rescale);
    }
    this->StoreOutputs();
  }
};

template <int NQ>
void RunPairTile(const AttentionArgs& a, int head, int token, int token_end, float* scratch) {
  const int64_t row = NQ * kLanes, kv_head = head / (a.n_heads / a.n_kv_heads) * a.kv_head_stride;
  float *qt = scratch, *ot = qt + a.head_dim * row, *s = ot + a.head_dim * row;
  uint32_t* qp = reinterpret_cast<uint32_t*>(s + kBlockKeys * row);
  uint32_t* weights = qp + a.head_dim / 2 * row;
  PairTile<NQ> tile = {{a, head, token, token_end, qt, ot, s, nullptr, {}, {}},
                       qp,
                       weights,
                       weights + kPairRows * row,
                       static_cast<const uint16_t*>(a.k) + kv_head,
                       static_cast<const uint16_t*>(a.v) + kv_head};
  tile.Run();
}
// It fits into the scratch that AttentionScratchFloats gives, at the largest head and hence at smaller ones.
static_assert(int64_t{80} * 256 + (kBlockKeys + kPairRows) * 32 + kPairRows * kBlockStride <= AttentionScratchFloats(1, 1, 256));
static_assert(kBlockKeys * kKeyStride <= kPairRows * kBlockStride);

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  if (a.m < kWideTokens || a.kv_type != KvType::kF16) return kAttentionAvx512Vnni.prefill(a, begin, end, scratch);
  for (int64_t item = begin; item < end; ++item) {
    const PrefillItem it = PrefillItemAt(a, item);
    if (item + 1 < end && it.token_end < a.m) {  // the next item is the next tile of this head
      RunPairTile<2>(a, it.head, it.token, PrefillItemAt(a, ++item).token_end, scratch);
    } else {
      RunPairTile<1>(a, it.head, it.token, it.token_end, scratch);
    }
  }
}

void Decode(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  kAttentionAvx512Vnni.decode(a, begin, end, partial, scratch);
}
void Merge(const AttentionArgs& a, int head_begin, int head_end, const float* partial) {
  kAttentionAvx512Vnni.merge(a, head_begin, head_end, partial);
}

}  // namespace

extern const AttentionKernels kAttentionAvx512Bf16;
const AttentionKernels kAttentionAvx512Bf16 = {Prefill, Decode, Merge, "attention_avx512bf16"};

}  // namespace slm::kernels
