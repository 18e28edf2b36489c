// Prefill attention over an f16 cache on the bf16 dot products of AVX-512 (two products a lane): what of attention is products takes half
// the time, a third of a long prompt's.
//
// Queries, keys, weights and values are rounded to bf16 (2^-9 relative each), sums are f32, the softmax is that of avx512_prefill.h. Keys
// and values are rounded once for kPairTiles tiles of a head, a block after the other: rounding them for each tile took a sixth of the
// time. Calls of fewer than kWideTokens tokens, caches of f32 and decode stay with the f32 kernels of avx512vnni.cc.
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
constexpr int kPairTiles = 4;

// A block of keys and values of one KV head, as pairs.
struct PairBlock {
  const AttentionArgs& a;
  const uint16_t *k, *v;                // of the head, slot 0
  uint32_t *keys, *values;              // [64][kKeyStride], [kPairRows][kBlockStride]
  int key = 0;                          // first slot
  int lead() const { return key & 1; }  // pairs of values lie at even slots, however the prompt is cut

  void Fill(int first, int n) {
    key = first;
    const uint16_t* from =
        reinterpret_cast<const uint16_t*>(KeysAt(a, key)) + (k - static_cast<const uint16_t*>(a.k)) + int64_t{key} * a.head_dim;
    for (int j = 0; j < n; ++j, from += a.head_dim)
      for (int d = 0; d < a.head_dim; d += kLanes)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(keys + j * kKeyStride + d / 2),
                            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(LoadHalfs(from + d, a.head_dim - d))));
    from = reinterpret_cast<const uint16_t*>(ValuesAt(a, key)) + (v - static_cast<const uint16_t*>(a.v)) + int64_t{key} * a.head_dim;
    for (int p = 0; 2 * p - lead() < n; ++p) {  // what is missing from a pair is 0
      const int low = 2 * p - lead(), high = low + 1;
      for (int d = 0; d < a.head_dim; d += kLanes) {
        const F x = low >= 0 ? LoadHalfs(from + low * a.head_dim + d, a.head_dim - d) : _mm512_setzero_ps();
        const F y = high < n ? LoadHalfs(from + high * a.head_dim + d, a.head_dim - d) : _mm512_setzero_ps();
        StorePairs(values + p * kBlockStride + d, Pairs(x, y));
      }
    }
  }
};

template <int NQ>
struct PairTile : PrefillTile<NQ, HalfRows> {
  using Base = PrefillTile<NQ, HalfRows>;
  using Base::a, Base::kRow, Base::ot, Base::s, Base::max, Base::sum;
  uint32_t *qp, *weights;  // [D / 2][NQ * 16], [kPairRows][NQ * 16]

  int First() const {
    const int p0 = a.position + this->token;
    return a.window > 0 && p0 + 1 > a.window ? p0 + 1 - a.window : 0;
  }
  int Last() const { return a.position + this->token_end - 1; }

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

  void Scores(const uint32_t* keys, int n) const {
    constexpr int NK = NQ == 2 ? 8 : 16;
    for (int j = 0; j < n; j += NK) {
      F acc[NK][NQ];
      for (int i = 0; i < NK; ++i)
        for (int x = 0; x < NQ; ++x) acc[i][x] = _mm512_setzero_ps();
      const uint32_t *kp = keys + j * kKeyStride, *q = qp;
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

  void ValueColumns(const uint32_t* values, int d, int pairs, const F* rescale) const {
    constexpr int ND = 8;
    F acc[ND][NQ];
    for (int i = 0; i < ND; ++i)
      for (int x = 0; x < NQ; ++x) acc[i][x] = _mm512_mul_ps(Load(ot + (d + i) * kRow + x * kLanes), rescale[x]);
    const uint32_t *vp = values + d, *w = weights;
    for (int p = 0; p < pairs; ++p, vp += kBlockStride, w += kRow) {
      __m512i q[NQ];
      for (int x = 0; x < NQ; ++x) q[x] = HeldPairs(LoadPairs(w + x * kLanes));
      for (int i = 0; i < ND; ++i)
        for (int x = 0; x < NQ; ++x) acc[i][x] = Dots(acc[i][x], q[x], vp[i]);
    }
    for (int i = 0; i < ND; ++i)
      for (int x = 0; x < NQ; ++x) Store(ot + (d + i) * kRow + x * kLanes, acc[i][x]);
  }

  void Begin() {
    this->LoadQueries();
    for (int d = 0; d < a.head_dim / 2; ++d)
      for (int i = 0; i < kRow; i += kLanes)
        StorePairs(qp + d * kRow + i, Pairs(Load(this->qt + 2 * d * kRow + i), Load(this->qt + (2 * d + 1) * kRow + i)));
    for (int x = 0; x < NQ; ++x) {
      max[x] = Set(-kInf);
      sum[x] = _mm512_setzero_ps();
    }
    for (int i = 0; i < a.head_dim * kRow; i += kLanes) Store(ot + i, _mm512_setzero_ps());
  }

  // What this tile sees of a block that ends before slot `end`.
  void Add(const PairBlock& b, int end) {
    const int key = First() > b.key ? First() : b.key, n = (end <= Last() ? end : Last() + 1) - key;
    if (n <= 0) return;
    const int lead = key & 1;
    F rescale[NQ];
    Scores(b.keys + (key - b.key) * kKeyStride, n);
    this->Softmax(key, n, rescale);
    Weights(n, lead);
    const uint32_t* values = b.values + (key - lead - (b.key - b.lead())) / 2 * kBlockStride;
    for (int d = 0; d < a.head_dim; d += 8) ValueColumns(values, d, (n + lead + 1) / 2, rescale);
  }
};

// Adjacent tiles of a head, `count` times NQ tiles of the contract, from `token` on.
template <int NQ>
void RunPairTiles(const AttentionArgs& a, int head, int token, int count, float* scratch) {
  const int64_t row = NQ * kLanes, kv_head = head / (a.n_heads / a.n_kv_heads) * a.kv_head_stride;
  const int64_t tile_floats = (a.head_dim + a.head_dim / 2) * row;
  float *qt = scratch + kPairTiles * tile_floats, *s = qt + a.head_dim * row;
  uint32_t* weights = reinterpret_cast<uint32_t*>(s + kBlockKeys * row);
  uint32_t* keys = weights + kPairRows * row;
  PairBlock block = {a, static_cast<const uint16_t*>(a.k) + kv_head, static_cast<const uint16_t*>(a.v) + kv_head, keys,
                     keys + kBlockKeys * kKeyStride};
  const auto tile = [&](int i) -> PairTile<NQ> {
    const int begin = token + i * NQ * kPrefillTile, end = begin + NQ * kPrefillTile;
    float* own = scratch + i * tile_floats;
    return {
        {a, head, begin, end < a.m ? end : a.m, qt, own, s, nullptr, {}, {}}, reinterpret_cast<uint32_t*>(own + a.head_dim * row), weights};
  };
  PairTile<NQ> tiles[kPairTiles] = {tile(0), tile(1), tile(2), tile(3)};
  for (int i = 0; i < count; ++i) tiles[i].Begin();
  const int last = tiles[count - 1].Last();
  for (int key = tiles[0].First(), end; key <= last; key = end) {
    end = key / kBlockKeys * kBlockKeys + kBlockKeys;
    if (end > last + 1) end = last + 1;
    block.Fill(key, end - key);
    for (int i = 0; i < count; ++i) tiles[i].Add(block, end);
  }
  for (int i = 0; i < count; ++i) tiles[i].StoreOutputs();
}
// It fits into the scratch that AttentionScratchFloats gives, at the largest head and hence at smaller ones.
static_assert(kPairTiles == 4);
static_assert((kPairTiles * 384 + 256 + kBlockKeys + kPairRows) * 32 + kBlockKeys * kKeyStride + kPairRows * kBlockStride <=
              AttentionScratchFloats(1, 1, 256));

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  if (a.m < kWideTokens || a.kv_type != KvType::kF16) return kAttentionAvx512Vnni.prefill(a, begin, end, scratch);
  for (int64_t item = begin; item < end;) {
    const PrefillItem it = PrefillItemAt(a, item);
    // Items of one head follow each other: whole pairs of its tiles, then what is left of them.
    const int64_t left = (a.m - it.token + kPrefillTile - 1) / kPrefillTile, mine = left < end - item ? left : end - item;
    const int pairs = static_cast<int>(mine / 2 < kPairTiles ? mine / 2 : kPairTiles);
    if (pairs > 0) RunPairTiles<2>(a, it.head, it.token, pairs, scratch);
    else RunPairTiles<1>(a, it.head, it.token, 1, scratch);
    item += pairs > 0 ? 2 * pairs : 1;
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
