// Attention over an f16 or f32 cache in AVX2 with FMA and F16C.
//
// Decode: the query heads that share a KV head are the rows of one product; K and V stream through the registers once.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/attention/avx2_prefill.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

// Cache values p[0, 8) as f32.
inline F LoadKv(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline F LoadKv(const float* p) { return _mm256_loadu_ps(p); }

// The cache as prefill wants it.
template <class Kv>
struct PlainRows {
  const AttentionArgs& a;
  int64_t head;  // values before it
  int dim;
  PlainRows(const AttentionArgs& args, int kv_head) : a(args), head(kv_head * args.kv_head_stride), dim(args.head_dim) {}
  static void Widen(const Kv* p, int n, int dim, float* to) {
    for (int j = 0; j < n; ++j, p += dim, to += kBlockStride)
      for (int d = 0; d < dim; d += kLanes) Store(to + d, LoadKv(p + d));
  }
  static void Turn(float*, int, int) {}
  const Kv* Slot(const uint8_t* cache, int key) const { return reinterpret_cast<const Kv*>(cache) + head + int64_t{key} * dim; }
  void Keys(int key, int n, float* block) const { Widen(Slot(KeysAt(a, key), key), n, dim, block); }
  void Values(int key, int n, float* block) const { Widen(Slot(ValuesAt(a, key), key), n, dim, block); }
};

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  if (a.kv_type == KvType::kF16) PrefillItems<PlainRows<uint16_t>>(a, begin, end, scratch);
  else PrefillItems<PlainRows<float>>(a, begin, end, scratch);
}

// ---- decode --------------------------------------------------------------------------------------------------------------

// Sums of four registers.
inline __m128 SumFour(F a, F b, F c, F d) {
  const F abcd = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
}
inline float Sum(F v) { return _mm_cvtss_f32(SumFour(v, v, v, v)); }

// Asks for the `bytes` that lie kAhead bytes past p: 40 % more speed when the cache of a long context lies in memory. Past the
// end of the cache this does nothing.
constexpr int64_t kAhead = 2048;
inline void Prefetch(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(static_cast<const char*>(p) + kAhead + i, _MM_HINT_T0);
}

// Scores of R query rows [R][D] against 4 keys.
template <int R, class Kv>
inline void ScoreFour(const float* q, const Kv* const* k, int dim, float* s) {
  F acc[R][4];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < 4; ++j) acc[r][j] = _mm256_setzero_ps();
  for (int d = 0; d < dim; d += kLanes) {
    for (int j = 0; j < 4; ++j) {
      const F kv = LoadKv(k[j] + d);
      for (int r = 0; r < R; ++r) acc[r][j] = Fma(Load(q + r * dim + d), kv, acc[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) _mm_storeu_ps(s + r * kDecodeChunk, SumFour(acc[r][0], acc[r][1], acc[r][2], acc[r][3]));
}

// out[r][d, d + 8 C) = sum_j p[r][j] v[j][d ...]
template <int R, int C, class Kv>
inline void ValueSums(const float* p, const Kv* v, int n, int dim, float* const* out, int d) {
  F acc[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = _mm256_setzero_ps();
  for (int j = 0; j < n; ++j) {
    if (d == 0) Prefetch(v + int64_t{j} * dim, int64_t{dim} * static_cast<int64_t>(sizeof(Kv)));
    F w[R];
    for (int r = 0; r < R; ++r) w[r] = Held(Set(p[r * kDecodeChunk + j]));
    for (int c = 0; c < C; ++c) {
      const F x = LoadKv(v + int64_t{j} * dim + d + c * kLanes);
      for (int r = 0; r < R; ++r) acc[r][c] = Fma(w[r], x, acc[r][c]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) Store(out[r] + d + c * kLanes, acc[r][c]);
}

template <int R, class Kv>
inline void ValueRows(const float* p, const Kv* v, int n, int dim, float* const* out) {
  int d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes) ValueSums<R, 4>(p, v, n, dim, out, d);
  for (; d < dim; d += kLanes) ValueSums<R, 1>(p, v, n, dim, out, d);
}

struct RowSoftmax {
  float max, sum;
};
// s[0, n): scores to exponentials, in place.
inline RowSoftmax SoftmaxRow(float* s, int n, float softcap) {
  for (int j = n; j % kLanes != 0; ++j) s[j] = -kInf;  // fills the last register
  F top = Set(-kInf), total = _mm256_setzero_ps();
  for (int j = 0; j < n; j += kLanes) {
    const F raw = Load(s + j);
    F x = Checked(raw);
    if (softcap > 0) x = Capped(x, softcap);
    if (j + kLanes > n) {  // the filling is -inf on purpose
      const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      x = _mm256_blendv_ps(raw, x, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - j), lane)));
    }
    top = _mm256_max_ps(x, top);
    Store(s + j, x);
  }
  float lane[kLanes], max = -kInf;
  Store(lane, top);
  for (int i = 0; i < kLanes; ++i) max = lane[i] > max ? lane[i] : max;
  for (int j = 0; j < n; j += kLanes) {
    const F e = ExpNeg(_mm256_sub_ps(Load(s + j), Set(max)));
    total = _mm256_add_ps(total, e);
    Store(s + j, e);
  }
  return {max, Sum(total)};
}

void ScaleInto(float* x, float scale, int n) {
  for (int d = 0; d < n; d += kLanes) Store(x + d, _mm256_mul_ps(Load(x + d), Set(scale)));
}

template <int R, class Kv>
inline void ScoreRows(const float* q, const Kv* k, int n, int dim, float* s) {
  for (int j = 0; j < n; j += 4) {
    const Kv* row[4];  // the last keys repeat: their extra scores lie past n and are never used
    Prefetch(k + int64_t{j} * dim, int64_t{4} * dim * static_cast<int64_t>(sizeof(Kv)));
    for (int i = 0; i < 4; ++i) row[i] = k + int64_t{j + i < n ? j + i : n - 1} * dim;
    ScoreFour<R>(q, row, dim, s + j);
  }
}

template <class Kv>
void DecodeItems(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim, chunks = DecodeChunks(a);
  float *s = scratch, *q = s + group * kDecodeChunk;
  for (int64_t item = begin; item < end; ++item) {
    const DecodeItem it = DecodeItemAt(a, item);
    const int head = it.kv_head * group, n = it.key_end - it.key;
    const PlainRows<Kv> cache(a, it.kv_head);
    const Kv *k = cache.Slot(KeysAt(a, it.key), it.key), *v = cache.Slot(ValuesAt(a, it.key), it.key);
    for (int i = 0; i < group * dim; i += kLanes) Store(q + i, _mm256_mul_ps(Load(a.q + int64_t{head} * dim + i), Set(a.scale)));
    for (int r = 0, rows; r < group; r += rows) {
      rows = group - r < 3 ? group - r : group - r == 4 ? 2 : 3;
      float *qr = q + r * dim, *sr = s + r * kDecodeChunk, *out[3];
      switch (rows) {
        case 1: ScoreRows<1>(qr, k, n, dim, sr); break;
        case 2: ScoreRows<2>(qr, k, n, dim, sr); break;
        default: ScoreRows<3>(qr, k, n, dim, sr);
      }
      RowSoftmax soft[3];
      for (int i = 0; i < rows; ++i) {
        soft[i] = SoftmaxRow(sr + i * kDecodeChunk, n, a.softcap);
        float* p = partial + (int64_t{head + r + i} * chunks + it.chunk) * PartialStride(dim);
        out[i] = chunks == 1 ? a.out + int64_t{head + r + i} * dim : p + 16;
        if (chunks > 1) {
          p[0] = soft[i].max;
          p[1] = soft[i].sum;
        }
      }
      switch (rows) {
        case 1: ValueRows<1>(sr, v, n, dim, out); break;
        case 2: ValueRows<2>(sr, v, n, dim, out); break;
        default: ValueRows<3>(sr, v, n, dim, out);
      }
      if (chunks == 1)
        for (int i = 0; i < rows; ++i) ScaleInto(out[i], 1.0f / soft[i].sum, dim);
    }
  }
}

void Decode(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  if (a.kv_type == KvType::kF16) DecodeItems<uint16_t>(a, begin, end, partial, scratch);
  else DecodeItems<float>(a, begin, end, partial, scratch);
}

void Merge(const AttentionArgs& a, int head_begin, int head_end, const float* partial) {
  const int dim = a.head_dim, chunks = DecodeChunks(a);
  const int64_t stride = PartialStride(dim);
  for (int h = head_begin; h < head_end; ++h) {
    const float* p = partial + int64_t{h} * chunks * stride;
    float* out = a.out + int64_t{h} * dim;
    float max = -kInf, sum = 0;
    for (int c = 0; c < chunks; ++c) max = p[c * stride] > max ? p[c * stride] : max;
    for (int d = 0; d < dim; d += kLanes) Store(out + d, _mm256_setzero_ps());
    for (int c = 0; c < chunks; ++c) {
      const F w = ExpNeg(Set(p[c * stride] - max));
      sum += _mm256_cvtss_f32(w) * p[c * stride + 1];
      const float* acc = p + c * stride + 16;
      for (int d = 0; d < dim; d += kLanes) Store(out + d, Fma(w, Load(acc + d), Load(out + d)));
    }
    ScaleInto(out, 1.0f / sum, dim);
  }
}

}  // namespace

extern const AttentionKernels kAttentionAvx2;
const AttentionKernels kAttentionAvx2 = {Prefill, Decode, Merge, "attention_avx2"};

}  // namespace slm::kernels
