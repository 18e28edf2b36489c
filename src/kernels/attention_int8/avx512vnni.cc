// Attention over an int8 cache with AVX-512-VNNI.
//
// Decode: the 16 lanes are the 16 slots of a tile for scores and 16 dimensions for values, so nothing is ever reduced. VPDPBUSD
// multiplies unsigned by signed bytes: keys are stored with an offset for it, weights are unsigned by nature. Query and weight
// codes have two bytes, two products each. The query heads that share a KV head use every load of a tile together.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/attention/avx512_prefill.h"
#include "kernels/attention_int8/codes.h"

namespace slm::kernels {
namespace {

using I = __m512i;

uint16_t ToHalf(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 0));
}
float ToFloat(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
void StoreKey(const float* x, int dim, int64_t slot, uint8_t* head) { StoreKeyWith(x, dim, slot, head, ToHalf, ToFloat); }
void StoreValue(const float* x, int dim, int64_t slot, uint8_t* head) { StoreValueCodes(x, dim, slot, head); }

inline F KeyScales(const uint8_t* tile, int group) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + group * kTileSlots * 2)));
}
inline F ValueScales(const uint8_t* tile) { return Load(reinterpret_cast<const float*>(tile)); }
inline I Bytes(const void* p) { return _mm512_loadu_si512(p); }
inline I FourOf(const uint8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}
// 256 a + b
inline I Joined(I a, I b) { return _mm512_add_epi32(_mm512_slli_epi32(a, 8), b); }

// ---- prefill -------------------------------------------------------------------------------------------------------------

// The cache as prefill wants it.
struct TileRows {
  const AttentionArgs& a;
  int kv_head, dim;
  TileRows(const AttentionArgs& args, int head) : a(args), kv_head(head), dim(args.head_dim) {}

  // Queries [D][row], turned as the keys are.
  static void Turn(float* q, int dim, int row) {
    const int n = RotationSize(dim);
    for (int h = 1; h < n; h *= 2) {
      for (int i = 0; i < dim; ++i) {
        if (i & h) continue;
        float *x = q + i * row, *y = x + h * row;
        for (int v = 0; v < row; v += kLanes) {
          const F a = Load(x + v), b = Load(y + v);
          Store(x + v, _mm512_add_ps(a, b));
          Store(y + v, _mm512_sub_ps(a, b));
        }
      }
    }
    for (int i = 0; i < dim * row; i += kLanes) Store(q + i, _mm512_mul_ps(Load(q + i), Set(1.0f / static_cast<float>(n))));
  }

  void Keys(int key, int n, float* block) const {
    for (int slot = key / kTileSlots * kTileSlots; slot < key + n; slot += kTileSlots)
      KeyTile(slot, slot < key ? key - slot : 0, block + (slot - key) * kBlockStride);
  }
  void Values(int key, int n, float* block) const {
    for (int slot = key / kTileSlots * kTileSlots; slot < key + n; slot += kTileSlots)
      ValueTile(slot, slot < key ? key - slot : 0, block + (slot - key) * kBlockStride);
  }

 private:
  // Rows of slots [begin, 16) of the tile; row 0 belongs to its first slot.
  void KeyTile(int slot, int begin, float* rows) const {
    const uint8_t* tile = KeyTileOf(a, kv_head, slot);
    const uint8_t* codes = tile + KeyScaleBytes(dim);
    for (int g = 0; g * kKeyGroup < dim; ++g) {
      const F scales = KeyScales(tile, g);
      F scale[4];  // register i: the scales of slots 4 i ... 4 i + 3, four times each
      for (int i = 0; i < 4; ++i) {
        const I four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        scale[i] = _mm512_permutexvar_ps(_mm512_add_epi32(four, _mm512_set1_epi32(4 * i)), scales);
      }
      const int end = dim < (g + 1) * kKeyGroup ? dim : (g + 1) * kKeyGroup;
      for (int d = g * kKeyGroup; d < end; d += 4) {
        for (int i = 0; i < 4; ++i) {
          const I code = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + d * kTileSlots + i * 16)));
          const F x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(code, _mm512_set1_epi32(128))), scale[i]);
          float* to = rows + i * 4 * kBlockStride + d;
          if (i * 4 >= begin) _mm_storeu_ps(to, _mm512_castps512_ps128(x));
          if (i * 4 + 1 >= begin) _mm_storeu_ps(to + kBlockStride, _mm512_extractf32x4_ps(x, 1));
          if (i * 4 + 2 >= begin) _mm_storeu_ps(to + 2 * kBlockStride, _mm512_extractf32x4_ps(x, 2));
          if (i * 4 + 3 >= begin) _mm_storeu_ps(to + 3 * kBlockStride, _mm512_extractf32x4_ps(x, 3));
        }
      }
    }
  }
  void ValueTile(int slot, int begin, float* rows) const {
    const uint8_t* tile = ValueTileOf(a, kv_head, slot);
    const uint8_t* codes = tile + kValueScaleBytes;
    for (int i = 0; i < 4; ++i) {
      F scale[4];
      for (int c = 0; c < 4; ++c) scale[c] = Set(reinterpret_cast<const float*>(tile)[i * 4 + c]);
      for (int d = 0; d < dim; d += kLanes) {
        const __mmask16 m = Left(dim - d);
        const I four = _mm512_maskz_loadu_epi32(m, codes + (int64_t{i} * dim + d) * 4);
        const I byte[4] = {_mm512_slli_epi32(four, 24), _mm512_slli_epi32(four, 16), _mm512_slli_epi32(four, 8), four};
        for (int c = 0; c < 4; ++c) {
          const F x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(byte[c], 24)), scale[c]);
          if (i * 4 + c >= begin) _mm512_mask_storeu_ps(rows + (i * 4 + c) * kBlockStride + d, m, x);
        }
      }
    }
  }
};

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) { PrefillItems<TileRows>(a, begin, end, scratch); }

// ---- decode --------------------------------------------------------------------------------------------------------------

constexpr int kMaxRows = 8;  // query heads taken together
// Asks for the line that lies kAhead bytes past p, one for each line that is read: in bursts of a tile the requests would wait for
// each other. Past the end of the cache this does nothing.
constexpr int64_t kAhead = 4096;
inline void Prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p) + kAhead, _MM_HINT_T0); }

// Up to kMaxRows query heads: their codes, and what becomes of their scores. Lies in scratch.
struct Rows {
  uint8_t *hi, *lo;      // [rows][D] bytes of the query codes
  int32_t* sums;         // [rows][8]
  float* scale;          // [rows]
  float* s;              // [rows][kDecodeChunk + 16] scores, then weights
  uint8_t *w_hi, *w_lo;  // [rows][kDecodeChunk + 16] bytes of the weight codes
  float* w_scale;        // [rows]
};
constexpr int kScoreRow = kDecodeChunk + kTileSlots;

inline void LoadQuery(const float* q, float scale, int dim, int row, const Rows& rows) {
  int16_t codes[256];
  rows.scale[row] = QueryCodes(q, dim, codes, rows.sums + row * 8) * scale;
  for (int d = 0; d < dim; ++d) {
    const int lo = static_cast<int8_t>(codes[d]);  // signed, so that hi takes the rest
    rows.lo[row * dim + d] = static_cast<uint8_t>(lo);
    rows.hi[row * dim + d] = static_cast<uint8_t>((codes[d] - lo) >> 8);
  }
}

// Scores of R heads against T tiles, from row r of `rows` and tile t on.
template <int R, int T>
inline void ScoreTiles(const Rows& rows, const uint8_t* tile, int dim, float* s) {
  const int64_t bytes = KeyTileBytes(dim), header = KeyScaleBytes(dim);
  F sum[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sum[r][t] = _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) Prefetch(tile + t * bytes);
  for (int g = 0; g * kKeyGroup < dim; ++g) {
    I hi[R][T], lo[R][T];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        hi[r][t] = _mm512_setzero_si512();
        lo[r][t] = _mm512_set1_epi32(rows.sums[r * 8 + g]);
      }
    }
    const int end = dim < (g + 1) * kKeyGroup ? dim : (g + 1) * kKeyGroup;
    for (int d = g * kKeyGroup; d < end; d += 4) {
      I k[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        k[t] = Bytes(tile + t * bytes + header + d * kTileSlots);
        Prefetch(tile + t * bytes + header + d * kTileSlots);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I qh = FourOf(rows.hi + r * dim + d), ql = FourOf(rows.lo + r * dim + d);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          hi[r][t] = _mm512_dpbusd_epi32(hi[r][t], k[t], qh);
          lo[r][t] = _mm512_dpbusd_epi32(lo[r][t], k[t], ql);
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const F scale = KeyScales(tile + t * bytes, g);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r][t] = Fma(_mm512_cvtepi32_ps(Joined(hi[r][t], lo[r][t])), scale, sum[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) Store(s + r * kScoreRow + t * kTileSlots, _mm512_mul_ps(sum[r][t], Set(rows.scale[r])));
}

template <int R>
void Scores(const Rows& rows, const uint8_t* tiles, int n, int dim) {
  constexpr int T = R <= 4 ? 2 : 1;
  int t = 0;
  for (; t + T <= n; t += T) ScoreTiles<R, T>(rows, tiles + t * KeyTileBytes(dim), dim, rows.s + t * kTileSlots);
  for (; t < n; ++t) ScoreTiles<R, 1>(rows, tiles + t * KeyTileBytes(dim), dim, rows.s + t * kTileSlots);
}

struct RowSoftmax {
  float max, sum;
};
// Scores to weight codes and their scale. Slots outside [t.begin, t.end) are no part of the softmax and weigh 0.
inline RowSoftmax Weights(const Rows& rows, int row, const TileRange& t, const uint8_t* values, int dim, float softcap) {
  float* s = rows.s + row * kScoreRow;
  F top = Set(-kInf), total = _mm512_setzero_ps(), most = total, shown = total;
  for (int j = 0; j < t.end; j += kLanes) {
    const __mmask16 in = Left(t.end - j) & static_cast<__mmask16>(j < t.begin ? 0xffffu << (t.begin - j) : 0xffffu);
    F x = Checked(Load(s + j));
    if (softcap > 0) x = Capped(x, softcap);
    top = _mm512_mask_max_ps(top, in, x, top);
    Store(s + j, x);
  }
  const float max = _mm512_reduce_max_ps(top);
  for (int j = 0; j < t.end; j += kLanes) {
    const __mmask16 in = Left(t.end - j) & static_cast<__mmask16>(j < t.begin ? 0xffffu << (t.begin - j) : 0xffffu);
    const F p = _mm512_maskz_mov_ps(in, ExpNeg(_mm512_sub_ps(Load(s + j), Set(max))));
    const F w = _mm512_maskz_mul_ps(in, p, ValueScales(values + j / kTileSlots * ValueTileBytes(dim)));
    total = _mm512_add_ps(total, p);
    most = _mm512_max_ps(w, most);  // a NaN leaves the maximum a number and shows below
    shown = Fma(w, _mm512_setzero_ps(), shown);
    Store(s + j, w);
  }
  const float step = _mm512_reduce_max_ps(most) * (1.0f / kWeightSteps);
  rows.w_scale[row] = step + _mm512_reduce_add_ps(shown);
  const F inverse = Set(Inverse(step));
  for (int j = 0; j < t.end; j += kLanes) {
    I code = _mm512_cvtps_epi32(_mm512_mul_ps(Load(s + j), inverse));
    code = _mm512_min_epi32(_mm512_max_epi32(code, _mm512_setzero_si512()), _mm512_set1_epi32(32767));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows.w_hi + row * kScoreRow + j), _mm512_cvtepi32_epi8(_mm512_srli_epi32(code, 8)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rows.w_lo + row * kScoreRow + j), _mm512_cvtepi32_epi8(code));
  }
  return {max, _mm512_reduce_add_ps(total)};
}

// out[r][d, d + 16 C) of R heads over n tiles; m masks a last, partly filled register (C = 1).
template <int R, int C>
inline void ValueSums(const Rows& rows, const uint8_t* tiles, int n, int dim, __mmask16 m, float* const* out, int d) {
  I hi[R][C], lo[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) hi[r][c] = lo[r][c] = _mm512_setzero_si512();
  for (int t = 0; t < n; ++t) {
    const uint8_t* tile = tiles + t * ValueTileBytes(dim);
    for (int i = 0; i < 4; ++i) {
      const uint8_t* codes = tile + kValueScaleBytes + (int64_t{i} * dim + d) * 4;
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) Prefetch(codes + c * 64);
      I v[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) v[c] = C == 1 ? _mm512_maskz_loadu_epi32(m, codes) : Bytes(codes + c * 64);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int at = r * kScoreRow + t * kTileSlots + i * 4;
        const I wh = FourOf(rows.w_hi + at), wl = FourOf(rows.w_lo + at);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          hi[r][c] = _mm512_dpbusd_epi32(hi[r][c], wh, v[c]);
          lo[r][c] = _mm512_dpbusd_epi32(lo[r][c], wl, v[c]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const F x = _mm512_mul_ps(_mm512_cvtepi32_ps(Joined(hi[r][c], lo[r][c])), Set(rows.w_scale[r]));
      if (C == 1) _mm512_mask_storeu_ps(out[r] + d, m, x);
      else Store(out[r] + d + c * kLanes, x);
    }
  }
}

template <int R>
void Values(const Rows& rows, const uint8_t* tiles, int n, int dim, float* const* out) {
  constexpr int C = R <= 3 ? 4 : R <= 6 ? 2 : 1;
  int d = 0;
  if (C > 1)
    for (; d + C * kLanes <= dim; d += C * kLanes) ValueSums<R, C>(rows, tiles, n, dim, 0, out, d);
  for (; d < dim; d += kLanes) ValueSums<R, 1>(rows, tiles, n, dim, Left(dim - d), out, d);
}

using ScoresFn = void (*)(const Rows&, const uint8_t*, int, int);
using ValuesFn = void (*)(const Rows&, const uint8_t*, int, int, float* const*);
constexpr ScoresFn kScores[] = {Scores<1>, Scores<2>, Scores<3>, Scores<4>, Scores<5>, Scores<6>, Scores<7>, Scores<8>};
constexpr ValuesFn kValues[] = {Values<1>, Values<2>, Values<3>, Values<4>, Values<5>, Values<6>, Values<7>, Values<8>};

static_assert(kMaxRows * (kScoreRow * 6 + 2 * 256 + 8 * 4 + 2 * 4) <= 4 * AttentionScratchFloats(1, 1, 8), "what prefill needs holds Rows");
Rows RowsIn(float* scratch, int dim) {
  Rows r;
  r.s = scratch;
  r.scale = r.s + kMaxRows * kScoreRow;
  r.w_scale = r.scale + kMaxRows;
  r.sums = reinterpret_cast<int32_t*>(r.w_scale + kMaxRows);
  r.hi = reinterpret_cast<uint8_t*>(r.sums + kMaxRows * 8);
  r.lo = r.hi + kMaxRows * dim;
  r.w_hi = r.lo + kMaxRows * dim;
  r.w_lo = r.w_hi + kMaxRows * kScoreRow;
  return r;
}

void ScaleInto(float* x, float scale, int n) {
  for (int d = 0; d < n; d += kLanes) {
    const __mmask16 m = Left(n - d);
    _mm512_mask_storeu_ps(x + d, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + d), Set(scale)));
  }
}

void Decode(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim, chunks = DecodeChunks(a);
  const Rows rows = RowsIn(scratch, dim);
  int loaded = -1;  // first head whose codes lie in `rows`
  for (int64_t item = begin; item < end; ++item) {
    const DecodeItem it = DecodeItemAt(a, item);
    const TileRange t = TilesOf(it);
    const uint8_t *k = KeyTileOf(a, it.kv_head, it.key), *v = ValueTileOf(a, it.kv_head, it.key);
    for (int r = 0; r < group; r += kMaxRows) {
      const int head = it.kv_head * group + r, n = group - r < kMaxRows ? group - r : kMaxRows;
      if (loaded != head)
        for (int i = 0; i < n; ++i) LoadQuery(a.q + int64_t{head + i} * dim, a.scale, dim, i, rows);
      loaded = head;
      kScores[n - 1](rows, k, t.count, dim);
      RowSoftmax soft[kMaxRows];
      float* out[kMaxRows];
      for (int i = 0; i < n; ++i) {
        soft[i] = Weights(rows, i, t, v, dim, a.softcap);
        float* p = partial + (int64_t{head + i} * chunks + it.chunk) * PartialStride(dim);
        out[i] = chunks == 1 ? a.out + int64_t{head + i} * dim : p + 16;
        if (chunks > 1) {
          p[0] = soft[i].max;
          p[1] = soft[i].sum;
        }
      }
      kValues[n - 1](rows, v, t.count, dim, out);
      if (chunks == 1)
        for (int i = 0; i < n; ++i) ScaleInto(out[i], 1.0f / soft[i].sum, dim);
    }
  }
}

}  // namespace

extern const AttentionInt8Kernels kAttentionInt8Avx512Vnni;
const AttentionInt8Kernels kAttentionInt8Avx512Vnni = {StoreKey, StoreValue, Prefill, Decode, "attention_int8_avx512vnni"};

}  // namespace slm::kernels
