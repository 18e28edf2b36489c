// Attention over an int8 cache in AVX2.
//
// Decode: codes are widened to 16 bits and multiplied in pairs (VPMADDWD), which is exact: VPMADDUBSW would saturate. A tile of
// 16 slots of keys lies four slots to a register, values four dimensions to a register, each as two halves of a sum. The query
// heads that share a KV head use every load of a tile together, three at a time.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/attention/avx2_prefill.h"
#include "kernels/attention_int8/codes.h"

namespace slm::kernels {
namespace {

using I = __m256i;

uint16_t ToHalf(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 0));
}
float ToFloat(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
void StoreKey(const float* x, int dim, int64_t slot, uint8_t* head) { StoreKeyWith(x, dim, slot, head, ToHalf, ToFloat); }
void StoreValue(const float* x, int dim, int64_t slot, uint8_t* head) { StoreValueCodes(x, dim, slot, head); }

// Scales of slots [8 half, 8 half + 8) of a tile.
inline F KeyScales(const uint8_t* tile, int group, int half) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + (group * kTileSlots + half * 8) * 2)));
}
inline F ValueScales(const uint8_t* tile, int half) { return Load(reinterpret_cast<const float*>(tile) + half * 8); }
inline __m128i Sixteen(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline I FourOf(const int16_t* p) {
  int64_t four;
  __builtin_memcpy(&four, p, 8);
  return _mm256_set1_epi64x(four);
}
// Sums of pairs of a and b, in order: eight sums.
inline I PairSums(I a, I b) { return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8); }

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
          Store(x + v, _mm256_add_ps(a, b));
          Store(y + v, _mm256_sub_ps(a, b));
        }
      }
    }
    for (int i = 0; i < dim * row; i += kLanes) Store(q + i, _mm256_mul_ps(Load(q + i), Set(1.0f / static_cast<float>(n))));
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
      float scales[kTileSlots];
      for (int half = 0; half < 2; ++half) Store(scales + half * 8, KeyScales(tile, g, half));
      const int end = dim < (g + 1) * kKeyGroup ? dim : (g + 1) * kKeyGroup;
      for (int s = begin / 2 * 2; s < kTileSlots; s += 2) {  // two slots, four dimensions of each at once
        const F scale = _mm256_set_m128(_mm_set1_ps(scales[s + 1]), _mm_set1_ps(scales[s]));
        for (int d = g * kKeyGroup; d < end; d += 4) {
          const I code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + d * kTileSlots + s * 4)));
          const F x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(128))), scale);
          float* to = rows + s * kBlockStride + d;
          if (s >= begin) _mm_storeu_ps(to, _mm256_castps256_ps128(x));
          _mm_storeu_ps(to + kBlockStride, _mm256_extractf128_ps(x, 1));
        }
      }
    }
  }
  void ValueTile(int slot, int begin, float* rows) const {
    const uint8_t* tile = ValueTileOf(a, kv_head, slot);
    const float* scales = reinterpret_cast<const float*>(tile);
    for (int i = begin / 4; i < 4; ++i) {
      F scale[4];
      for (int c = 0; c < 4; ++c) scale[c] = Set(scales[i * 4 + c]);
      for (int d = 0; d < dim; d += kLanes) {
        const uint8_t* codes = tile + kValueScaleBytes + (int64_t{i} * dim + d) * 4;
        const I four = _mm256_loadu_si256(reinterpret_cast<const I*>(codes));
        const I byte[4] = {_mm256_slli_epi32(four, 24), _mm256_slli_epi32(four, 16), _mm256_slli_epi32(four, 8), four};
        for (int c = 0; c < 4; ++c) {
          const F x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(byte[c], 24)), scale[c]);
          if (i * 4 + c >= begin) Store(rows + (i * 4 + c) * kBlockStride + d, x);
        }
      }
    }
  }
};

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) { PrefillItems<TileRows>(a, begin, end, scratch); }

// ---- decode --------------------------------------------------------------------------------------------------------------

constexpr int kMaxRows = 3;  // query heads taken together
constexpr int kScoreRow = kDecodeChunk + kTileSlots;
// Asks for a tile that lies kAhead tiles past this one. Past the end of the cache this does nothing.
constexpr int64_t kAhead = 2;
inline void Prefetch(const uint8_t* tile, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(tile) + kAhead * bytes + i, _MM_HINT_T0);
}

// Up to kMaxRows query heads: their codes, and what becomes of their scores. Lies in scratch.
struct Rows {
  float* s;        // [rows][kScoreRow] scores, then weights
  float* scale;    // [rows]
  float* w_scale;  // [rows]
  int32_t* sums;   // [rows][8]
  int16_t* q;      // [rows][D] query codes
  int16_t* w;      // [rows][kScoreRow] weight codes
};
Rows RowsIn(float* scratch, int dim) {
  Rows r;
  r.s = scratch;
  r.scale = r.s + kMaxRows * kScoreRow;
  r.w_scale = r.scale + 4;
  r.sums = reinterpret_cast<int32_t*>(r.w_scale + 4);
  r.q = reinterpret_cast<int16_t*>(r.sums + kMaxRows * 8);
  r.w = r.q + kMaxRows * dim;
  return r;
}

// Scores of R heads against a tile.
template <int R>
inline void ScoreTile(const Rows& rows, const uint8_t* tile, int dim, float* s) {
  Prefetch(tile, KeyTileBytes(dim));
  const uint8_t* codes = tile + KeyScaleBytes(dim);
  for (int g = 0; g * kKeyGroup < dim; ++g) {
    I acc[R][4];  // four slots, two half sums each
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) acc[r][i] = _mm256_setzero_si256();
    const int end = dim < (g + 1) * kKeyGroup ? dim : (g + 1) * kKeyGroup;
    for (int d = g * kKeyGroup; d < end; d += 4) {
      I q[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) q[r] = FourOf(rows.q + r * dim + d);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const I k = _mm256_cvtepu8_epi16(Sixteen(codes + d * kTileSlots + i * 16));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) acc[r][i] = _mm256_add_epi32(acc[r][i], _mm256_madd_epi16(k, q[r]));
      }
    }
#pragma GCC unroll 4
    for (int half = 0; half < 2; ++half) {
      const F scale = KeyScales(tile, g, half);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const I exact = _mm256_add_epi32(PairSums(acc[r][2 * half], acc[r][2 * half + 1]), _mm256_set1_epi32(rows.sums[r * 8 + g]));
        float* to = s + r * kScoreRow + half * 8;
        Store(to, Fma(_mm256_cvtepi32_ps(exact), scale, g == 0 ? _mm256_setzero_ps() : Load(to)));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int half = 0; half < 2; ++half)
      Store(s + r * kScoreRow + half * 8, _mm256_mul_ps(Load(s + r * kScoreRow + half * 8), Set(rows.scale[r])));
}
template <int R>
void Scores(const Rows& rows, const uint8_t* tiles, int n, int dim) {
  for (int t = 0; t < n; ++t) ScoreTile<R>(rows, tiles + t * KeyTileBytes(dim), dim, rows.s + t * kTileSlots);
}

struct RowSoftmax {
  float max, sum;
};
inline float Most(F v) {
  float lane[kLanes], most = -kInf;
  Store(lane, v);
  for (int i = 0; i < kLanes; ++i) most = lane[i] > most ? lane[i] : most;
  return most;
}
inline float Sum(F v) {
  float lane[kLanes];
  Store(lane, v);
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}
// Lanes of slots [j, j + 8) that lie in [t.begin, t.end).
inline F Inside(const TileRange& t, int j) {
  const I slot = _mm256_add_epi32(_mm256_set1_epi32(j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const I in =
      _mm256_and_si256(_mm256_cmpgt_epi32(slot, _mm256_set1_epi32(t.begin - 1)), _mm256_cmpgt_epi32(_mm256_set1_epi32(t.end), slot));
  return _mm256_castsi256_ps(in);
}
// Scores to weight codes and their scale. Slots outside [t.begin, t.end) are no part of the softmax and weigh 0.
inline RowSoftmax Weights(const Rows& rows, int row, const TileRange& t, const uint8_t* values, int dim, float softcap) {
  float* s = rows.s + row * kScoreRow;
  const int n = t.count * kTileSlots;
  F top = Set(-kInf), total = _mm256_setzero_ps(), most = total, shown = total;
  for (int j = 0; j < n; j += kLanes) {
    F x = Checked(Load(s + j));
    if (softcap > 0) x = Capped(x, softcap);
    x = _mm256_blendv_ps(Set(-kInf), x, Inside(t, j));
    top = _mm256_max_ps(x, top);  // the second operand wins on NaN
    Store(s + j, x);
  }
  const float max = Most(top);
  const float shift = max == -kInf ? 0 : max;  // every score is NaN: the exponentials stay NaN
  for (int j = 0; j < n; j += kLanes) {
    const F in = Inside(t, j), p = _mm256_and_ps(in, ExpNeg(_mm256_sub_ps(Load(s + j), Set(shift))));
    const F scale = ValueScales(values + j / kTileSlots * ValueTileBytes(dim), j / kLanes % 2);
    const F w = _mm256_and_ps(in, _mm256_mul_ps(p, scale));
    total = _mm256_add_ps(total, p);
    most = _mm256_max_ps(w, most);
    shown = Fma(w, _mm256_setzero_ps(), shown);
    Store(s + j, w);
  }
  const float step = Most(most) * (1.0f / kWeightSteps);
  rows.w_scale[row] = step + Sum(shown);
  const F inverse = Set(Inverse(step));
  for (int j = 0; j < n; j += kTileSlots) {
    const I a = _mm256_cvtps_epi32(_mm256_mul_ps(Load(s + j), inverse)),
            b = _mm256_cvtps_epi32(_mm256_mul_ps(Load(s + j + kLanes), inverse));
    const I code = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);  // saturates at 32767
    _mm256_storeu_si256(reinterpret_cast<I*>(rows.w + row * kScoreRow + j), _mm256_max_epi16(code, _mm256_setzero_si256()));
  }
  return {max, Sum(total)};
}

// out[r][d, d + 8 C) of R heads over n tiles.
template <int R, int C>
inline void ValueSums(const Rows& rows, const uint8_t* tiles, int n, int dim, float* const* out, int d) {
  I acc[R][2 * C];  // four dimensions, two half sums each
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < 2 * C; ++c) acc[r][c] = _mm256_setzero_si256();
  for (int t = 0; t < n; ++t) {
    const uint8_t* tile = tiles + t * ValueTileBytes(dim);
    if (d == 0) Prefetch(tile, ValueTileBytes(dim));
    for (int i = 0; i < 4; ++i) {
      const uint8_t* codes = tile + kValueScaleBytes + (int64_t{i} * dim + d) * 4;
      I w[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) w[r] = FourOf(rows.w + r * kScoreRow + t * kTileSlots + i * 4);
#pragma GCC unroll 4
      for (int c = 0; c < 2 * C; ++c) {
        const I v = _mm256_cvtepi8_epi16(Sixteen(codes + c * 16));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) acc[r][c] = _mm256_add_epi32(acc[r][c], _mm256_madd_epi16(v, w[r]));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c)
      Store(out[r] + d + c * kLanes, _mm256_mul_ps(_mm256_cvtepi32_ps(PairSums(acc[r][2 * c], acc[r][2 * c + 1])), Set(rows.w_scale[r])));
}
template <int R>
void Values(const Rows& rows, const uint8_t* tiles, int n, int dim, float* const* out) {
  int d = 0;
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes) ValueSums<R, 2>(rows, tiles, n, dim, out, d);
  for (; d < dim; d += kLanes) ValueSums<R, 1>(rows, tiles, n, dim, out, d);
}

using ScoresFn = void (*)(const Rows&, const uint8_t*, int, int);
using ValuesFn = void (*)(const Rows&, const uint8_t*, int, int, float* const*);
constexpr ScoresFn kScores[] = {Scores<1>, Scores<2>, Scores<3>};
constexpr ValuesFn kValues[] = {Values<1>, Values<2>, Values<3>};

void Decode(const AttentionArgs& a, int64_t begin, int64_t end, float* partial, float* scratch) {
  const int group = a.n_heads / a.n_kv_heads, dim = a.head_dim, chunks = DecodeChunks(a);
  const Rows rows = RowsIn(scratch, dim);
  int loaded = -1;  // first head whose codes lie in `rows`
  for (int64_t item = begin; item < end; ++item) {
    const DecodeItem it = DecodeItemAt(a, item);
    const TileRange t = TilesOf(it);
    const uint8_t *k = KeyTileOf(a, it.kv_head, it.key), *v = ValueTileOf(a, it.kv_head, it.key);
    for (int r = 0, n; r < group; r += n) {
      n = group - r < kMaxRows ? group - r : group - r == 4 ? 2 : kMaxRows;
      const int head = it.kv_head * group + r;
      if (loaded != head)
        for (int i = 0; i < n; ++i)
          rows.scale[i] = QueryCodes(a.q + int64_t{head + i} * dim, dim, rows.q + i * dim, rows.sums + i * 8) * a.scale;
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
      if (chunks > 1) continue;
      for (int i = 0; i < n; ++i)
        for (int d = 0; d < dim; d += kLanes) Store(out[i] + d, _mm256_mul_ps(Load(out[i] + d), Set(1.0f / soft[i].sum)));
    }
  }
}

}  // namespace

extern const AttentionInt8Kernels kAttentionInt8Avx2;
const AttentionInt8Kernels kAttentionInt8Avx2 = {StoreKey, StoreValue, Prefill, Decode, "attention_int8_avx2"};

}  // namespace slm::kernels
