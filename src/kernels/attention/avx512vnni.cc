// Attention over an f16 or f32 cache in AVX-512.
//
// Decode: the query heads that share a KV head are the rows of one product; K and V stream through the registers once.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/attention/avx512_prefill.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

// Cache values p[0, 16) under a mask, as f32.
inline F LoadKv(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline F LoadKv(const float* p) { return _mm512_loadu_ps(p); }
inline F LoadKv(const uint16_t* p, __mmask16 m) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p)); }
inline F LoadKv(const float* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }

// The cache as prefill wants it.
template <class Kv>
struct PlainRows {
  const AttentionArgs& a;
  int64_t head;  // values before it
  int dim;
  PlainRows(const AttentionArgs& args, int kv_head) : a(args), head(kv_head * args.kv_head_stride), dim(args.head_dim) {}
  static void Widen(const Kv* p, int n, int dim, float* to) {
    const int whole = dim / kLanes * kLanes;
    for (int j = 0; j < n; ++j, p += dim, to += kBlockStride) {
      for (int d = 0; d < whole; d += kLanes) Store(to + d, LoadKv(p + d));
      if (whole < dim) Store(to + whole, LoadKv(p + whole, Left(dim - whole)));
    }
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

constexpr int kMaxRows = 8;        // query heads taken together
constexpr int kFewRows = 4;        // up to here adding up registers is the cheaper way to scores
constexpr int kQueryStride = 256;  // a fixed distance of query rows keeps their addresses out of registers

// Sums of four registers.
inline __m128 SumFour(F a, F b, F c, F d) {
  const F ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const F cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
  const F abcd = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// Asks for the `bytes` that lie kAhead bytes past p: 40 % more speed when the cache of a long context lies in memory. Past the
// end of the cache this does nothing.
constexpr int64_t kAhead = 2048;
inline void Prefetch(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(static_cast<const char*>(p) + kAhead + i, _MM_HINT_T0);
}

// Scores of R <= 4 query rows against 4 keys: lanes are dimensions, each score is the sum of a register.
template <int R, class Kv>
inline void ScoreFour(const float* q, const Kv* const* k, int dim, float* s) {
  F acc[R][4];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[r][j] = _mm512_setzero_ps();
  const auto add = [&](const F* kv, int d) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const F x = Held(Load(q + r * kQueryStride + d));
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[r][j] = Fma(x, kv[j], acc[r][j]);
    }
  };
  int d = 0;
  F kv[4];
  for (; d + kLanes <= dim; d += kLanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) kv[j] = LoadKv(k[j] + d);
    add(kv, d);
  }
  if (d < dim) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) kv[j] = LoadKv(k[j] + d, Left(dim - d));
    add(kv, d);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) _mm_storeu_ps(s + r * kDecodeChunk, SumFour(acc[r][0], acc[r][1], acc[r][2], acc[r][3]));
}

// Four registers of four keys to four registers of four dimensions of each key: y[i] = x[0 ... 3] of dimensions [4 i, 4 i + 4).
inline void FourByFour(const F* x, F* y) {
  const F a = _mm512_shuffle_f32x4(x[0], x[1], 0x44), b = _mm512_shuffle_f32x4(x[2], x[3], 0x44);
  const F c = _mm512_shuffle_f32x4(x[0], x[1], 0xee), d = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
  y[0] = _mm512_shuffle_f32x4(a, b, 0x88);
  y[1] = _mm512_shuffle_f32x4(a, b, 0xdd);
  y[2] = _mm512_shuffle_f32x4(c, d, 0x88);
  y[3] = _mm512_shuffle_f32x4(c, d, 0xdd);
}
// Scores of R <= 8 query rows against 8 keys. Lanes are four dimensions of four keys: the shuffles serve all rows, where adding up
// a register for each score would cost as much as the products.
template <int R, class Kv>
inline void ScoreEight(const float* q, const Kv* const* k, int dim, float* s) {
  F acc[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  const auto add = [&](const F* x, int d) __attribute__((always_inline)) {
    F y[2][4];
    FourByFour(x, y[0]);
    FourByFour(x + 4, y[1]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F four = _mm512_broadcast_f32x4(_mm_loadu_ps(q + r * kQueryStride + d + 4 * i));
        acc[r][0] = Fma(four, y[0][i], acc[r][0]);
        acc[r][1] = Fma(four, y[1][i], acc[r][1]);
      }
    }
  };
  int d = 0;
  F x[8];
  for (; d + kLanes <= dim; d += kLanes) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) x[j] = LoadKv(k[j] + d);
    add(x, d);
  }
  if (d < dim) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) x[j] = LoadKv(k[j] + d, Left(dim - d));
    add(x, d);
  }
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const F two = _mm512_add_ps(_mm512_unpacklo_ps(acc[r][0], acc[r][1]), _mm512_unpackhi_ps(acc[r][0], acc[r][1]));
    const F one = _mm512_add_ps(two, _mm512_permute_ps(two, 0x4e));
    _mm256_storeu_ps(s + r * kDecodeChunk, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, one)));
  }
}

// out[r][d, d + 16 C) = sum_j p[r][j] v[j][d ...]; m masks a last, partly filled register (C = 1).
template <int R, int C, class Kv>
inline void ValueSums(const float* p, const Kv* v, int n, int dim, __mmask16 m, float* const* out, int d) {
  F acc[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[r][c] = _mm512_setzero_ps();
  for (int j = 0; j < n; ++j) {
    if (d == 0) Prefetch(v + int64_t{j} * dim, int64_t{dim} * static_cast<int64_t>(sizeof(Kv)));
    F x[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) x[c] = C == 1 ? LoadKv(v + int64_t{j} * dim + d, m) : LoadKv(v + int64_t{j} * dim + d + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F w = Held(Set(p[r * kDecodeChunk + j]));
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) acc[r][c] = Fma(w, x[c], acc[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      if (C == 1) _mm512_mask_storeu_ps(out[r] + d, m, acc[r][c]);
      else Store(out[r] + d + c * kLanes, acc[r][c]);
    }
  }
}

struct RowSoftmax {
  float max, sum;
};
// s[0, n): scores to exponentials, in place.
inline RowSoftmax SoftmaxRow(float* s, int n, float softcap) {
  F top = Set(-kInf), total = _mm512_setzero_ps();
  for (int j = 0; j < n; j += kLanes) {
    F x = Checked(Load(s + j));
    if (softcap > 0) x = Capped(x, softcap);
    const __mmask16 m = Left(n - j);
    top = _mm512_mask_max_ps(top, m, x, top);
    Store(s + j, x);
  }
  const float max = _mm512_reduce_max_ps(top);
  for (int j = 0; j < n; j += kLanes) {
    const F e = _mm512_maskz_mov_ps(Left(n - j), ExpNeg(_mm512_sub_ps(Load(s + j), Set(max))));
    total = _mm512_add_ps(total, e);
    Store(s + j, e);
  }
  return {max, _mm512_reduce_add_ps(total)};
}

void ScaleInto(float* x, float scale, int n) {
  for (int d = 0; d < n; d += kLanes) {
    const __mmask16 m = Left(n - d);
    _mm512_mask_storeu_ps(x + d, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + d), Set(scale)));
  }
}

template <int R, class Kv>
void Scores(const float* q, const Kv* k, int n, int dim, float* s) {
  constexpr int kKeys = R <= kFewRows ? 4 : 8;
  for (int j = 0; j < n; j += kKeys) {
    const Kv* row[kKeys];  // the last keys repeat: their extra scores lie past n and are never used
    Prefetch(k + int64_t{j} * dim, int64_t{kKeys} * dim * static_cast<int64_t>(sizeof(Kv)));
#pragma GCC unroll 8
    for (int i = 0; i < kKeys; ++i) row[i] = k + int64_t{j + i < n ? j + i : n - 1} * dim;
    if (R <= kFewRows) ScoreFour<(R <= kFewRows ? R : 1)>(q, row, dim, s + j);
    else ScoreEight<(R <= kFewRows ? kFewRows + 1 : R)>(q, row, dim, s + j);
  }
}
template <int R, class Kv>
void Values(const float* p, const Kv* v, int n, int dim, float* const* out) {
  constexpr int C = R <= 4 ? 4 : 2;
  int d = 0;
  for (; d + C * kLanes <= dim; d += C * kLanes) ValueSums<R, C>(p, v, n, dim, 0, out, d);
  for (; d < dim; d += kLanes) ValueSums<R, 1>(p, v, n, dim, Left(dim - d), out, d);
}
// By the number of rows less one.
template <class Kv>
constexpr void (*kScores[])(const float*, const Kv*, int, int, float*) = {Scores<1, Kv>, Scores<2, Kv>, Scores<3, Kv>, Scores<4, Kv>,
                                                                          Scores<5, Kv>, Scores<6, Kv>, Scores<7, Kv>, Scores<8, Kv>};
template <class Kv>
constexpr void (*kValues[])(const float*, const Kv*, int, int, float* const*) = {
    Values<1, Kv>, Values<2, Kv>, Values<3, Kv>, Values<4, Kv>, Values<5, Kv>, Values<6, Kv>, Values<7, Kv>, Values<8, Kv>};

// Scaled queries, zeros up to a whole register.
inline void LoadQueries(const AttentionArgs& a, int head, int n, float* q) {
  for (int i = 0; i < n; ++i)
    for (int d = 0; d < a.head_dim; d += kLanes)
      Store(q + i * kQueryStride + d,
            _mm512_mul_ps(_mm512_maskz_loadu_ps(Left(a.head_dim - d), a.q + int64_t{head + i} * a.head_dim + d), Set(a.scale)));
}

template <class Kv>
void DecodeItems(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim, chunks = DecodeChunks(a);
  float *s = scratch, *q = s + kMaxRows * kDecodeChunk;
  for (int64_t item = begin; item < end; ++item) {
    const DecodeItem it = DecodeItemAt(a, item);
    const int keys = it.key_end - it.key;
    const PlainRows<Kv> cache(a, it.kv_head);
    const Kv *k = cache.Slot(KeysAt(a, it.key), it.key), *v = cache.Slot(ValuesAt(a, it.key), it.key);
    for (int r = 0; r < group; r += kMaxRows) {
      const int head = it.kv_head * group + r, n = group - r < kMaxRows ? group - r : kMaxRows;
      LoadQueries(a, head, n, q);
      kScores<Kv>[n - 1](q, k, keys, dim, s);
      RowSoftmax soft[kMaxRows];
      float* out[kMaxRows];
      for (int i = 0; i < n; ++i) {
        soft[i] = SoftmaxRow(s + i * kDecodeChunk, keys, a.softcap);
        float* p = partial + (int64_t{head + i} * chunks + it.chunk) * PartialStride(dim);
        out[i] = chunks == 1 ? a.out + int64_t{head + i} * dim : p + 16;
        if (chunks > 1) {
          p[0] = soft[i].max;
          p[1] = soft[i].sum;
        }
      }
      kValues<Kv>[n - 1](s, v, keys, dim, out);
      if (chunks == 1)
        for (int i = 0; i < n; ++i) ScaleInto(out[i], 1.0f / soft[i].sum, dim);
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
    for (int d = 0; d < dim; d += 8) _mm256_storeu_ps(out + d, _mm256_setzero_ps());
    for (int c = 0; c < chunks; ++c) {
      const F w = ExpNeg(Set(p[c * stride] - max));
      sum += _mm512_cvtss_f32(w) * p[c * stride + 1];
      const float* acc = p + c * stride + 16;
      const __m256 w8 = _mm512_castps512_ps256(w);
      for (int d = 0; d < dim; d += 8) _mm256_storeu_ps(out + d, _mm256_fmadd_ps(w8, _mm256_loadu_ps(acc + d), _mm256_loadu_ps(out + d)));
    }
    ScaleInto(out, 1.0f / sum, dim);
  }
}

}  // namespace

extern const AttentionKernels kAttentionAvx512Vnni;
const AttentionKernels kAttentionAvx512Vnni = {Prefill, Decode, Merge, "attention_avx512vnni"};

}  // namespace slm::kernels
