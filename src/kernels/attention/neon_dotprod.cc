// Attention in NEON.
//
// Prefill: the lanes of four registers are the 16 queries of a tile, so that maximum, sum and rescaling of the online softmax are
// plain vertical operations and no reduction is ever needed. A block of keys (then of values) is widened to f32 once; four of its
// values fill a register and are multiplied by lane. Decode: the query heads that share a KV head are the rows of one product; K
// and V stream through the registers once for every three of them. D is a multiple of 8, so no register is ever partly filled.
//
// exp: x = n ln2 + r, exp(r) = 1 + r + r^2 P(r) with our own minimax P (relative error 3e-9), at most 2 ulp; below -87 it is 0.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/activation/math_neon.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {
namespace {

constexpr int kLanes = kWidth;
constexpr int kVectors = 4;  // registers of a row of 16 queries
constexpr int kRow = kVectors * kLanes;
constexpr float kInf = __builtin_inff();

// Cache values p[0, 4) as f32.
inline F LoadKv(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline F LoadKv(const float* p) { return Load(p); }

// exp(x) for x <= 0; NaN stays NaN.
inline F ExpNeg(F x) {
  const uint32x4_t unseen = vcltq_f32(x, Set(-87.0f));
  x = vmaxq_f32(Set(-87.0f), x);
  const F n = vrndnq_f32(vmulq_f32(x, Set(1.44269504f)));
  F r = Fma(n, Set(-0x1.62e4p-1f), x);  // ln2 in two parts: the first has 13 bits, so n * it is exact
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  F q = Fma(Set(0x1.6a243p-10f), r, Set(0x1.1239e4p-7f));
  q = Fma(q, r, Set(0x1.5558f2p-5f));
  q = Fma(q, r, Set(0x1.555492p-3f));
  q = Fma(q, r, Set(0x1.fffffcp-2f));
  q = Fma(vmulq_f32(r, r), q, r);
  const int32x4_t two_to_n = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
  return vbslq_f32(unseen, Set(0), vmulq_f32(vaddq_f32(q, Set(1.0f)), vreinterpretq_f32_s32(two_to_n)));
}

// A score that is not finite becomes NaN before the soft cap or the softmax could hide it.
inline F Checked(F s) { return vaddq_f32(s, vsubq_f32(s, s)); }
inline F Capped(F s, float cap) { return vmulq_n_f32(Tanh(vdivq_f32(s, Set(cap))), cap); }
// The larger operand, the number when the other is NaN: a maximum stays a number, the exponential of the NaN does not.
inline F LargerNumber(F a, F b) { return vmaxnmq_f32(a, b); }

// Transposes 4 rows of 4 values.
inline void Transpose(F* r) {
  const float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
  r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
  r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
  r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
  r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

// ---- prefill -------------------------------------------------------------------------------------------------------------

// acc += lane kLane of x times the row of 16 values at p.
template <int kLane, int N>
[[gnu::always_inline]] inline void AddRow(const float* p, const F (&x)[N], F (&acc)[N][kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const F row = Load(p + v * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) acc[i][v] = vfmaq_laneq_f32(acc[i][v], row, x[i], kLane);
  }
}
// acc[i] += lane i of x times the row of 16 values at p.
[[gnu::always_inline]] inline void AddLanes(const float* p, F x, F (&acc)[4][kVectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const F row = Load(p + v * kLanes);
    acc[0][v] = vfmaq_laneq_f32(acc[0][v], row, x, 0);
    acc[1][v] = vfmaq_laneq_f32(acc[1][v], row, x, 1);
    acc[2][v] = vfmaq_laneq_f32(acc[2][v], row, x, 2);
    acc[3][v] = vfmaq_laneq_f32(acc[3][v], row, x, 3);
  }
}

// A tile of 16 queries of one head against all keys they see.
template <class Kv>
struct PrefillTile {
  const AttentionArgs& a;
  int head, token, token_end;
  float *qt, *ot, *s, *block;  // [D][16], [D][16], [kBlockKeys][16], [kBlockKeys][kBlockStride]
  F max[kVectors], sum[kVectors];

  int Clamped(int i) const { return token + i < token_end ? token + i : token_end - 1; }

  // Scaled queries, transposed. Lanes past the last token repeat it.
  void LoadQueries() {
    for (int v = 0; v < kVectors; ++v) {
      for (int d = 0; d < a.head_dim; d += kLanes) {
        F r[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const float* q = a.q + Clamped(v * kLanes + i) * a.q_stride + int64_t{head} * a.head_dim + d;
          r[i] = vmulq_n_f32(Load(q), a.scale);
        }
        Transpose(r);
        for (int i = 0; i < kLanes; ++i) Store(qt + (d + i) * kRow + v * kLanes, r[i]);
      }
    }
  }

  void StoreOutputs() {
    for (int v = 0; v < kVectors; ++v) {
      const F scale = vdivq_f32(Set(1.0f), sum[v]);
      for (int d = 0; d < a.head_dim; d += kLanes) {
        F r[kLanes];
        for (int i = 0; i < kLanes; ++i) r[i] = vmulq_f32(Load(ot + (d + i) * kRow + v * kLanes), scale);
        Transpose(r);
        for (int i = 0; i < kLanes && token + v * kLanes + i < token_end; ++i) {
          Store(a.out + (token + v * kLanes + i) * a.out_stride + int64_t{head} * a.head_dim + d, r[i]);
        }
      }
    }
  }

  void Widen(const Kv* rows, int n) {
    const int dim = a.head_dim;
    for (int j = 0; j < n; ++j) {
      const Kv* p = rows + int64_t{j} * dim;
      float* to = block + j * kBlockStride;
      for (int d = 0; d < dim; d += kLanes) Store(to + d, LoadKv(p + d));
    }
  }

  // Raw scores of keys [0, n) of the block, n rounded up to a multiple of NK (rows past n are scratch of no meaning).
  void Scores(int n) {
    constexpr int NK = 4;
    for (int j = 0; j < n; j += NK) {
      F acc[NK][kVectors];
      for (int k = 0; k < NK; ++k)
        for (int v = 0; v < kVectors; ++v) acc[k][v] = Set(0);
      const float* kp = block + j * kBlockStride;
      const float* qp = qt;
      for (int d = 0; d < a.head_dim; d += kLanes, kp += kLanes, qp += kLanes * kRow) {
        const F key[NK] = {Load(kp), Load(kp + kBlockStride), Load(kp + 2 * kBlockStride), Load(kp + 3 * kBlockStride)};
        AddRow<0>(qp, key, acc);
        AddRow<1>(qp + kRow, key, acc);
        AddRow<2>(qp + 2 * kRow, key, acc);
        AddRow<3>(qp + 3 * kRow, key, acc);
      }
      for (int k = 0; k < NK; ++k)
        for (int v = 0; v < kVectors; ++v) Store(s + (j + k) * kRow + v * kLanes, acc[k][v]);
    }
  }

  // Soft cap, mask, exponential and sum of the block's scores in place; returns the factor of what was accumulated before.
  void Softmax(int key, int n, F* rescale) {
    for (int v = 0; v < kVectors; ++v) {
      const int p0 = a.position + Clamped(v * kLanes), p1 = a.position + Clamped(v * kLanes + kLanes - 1);
      const bool masked = key + n - 1 > p0 || (a.window > 0 && key < p1 - a.window + 1);
      const int32x4_t lane = {0, 1, 2, 3};
      const int32x4_t last = vminq_s32(vaddq_s32(vdupq_n_s32(a.position + token + v * kLanes), lane), vdupq_n_s32(p1));
      const int32x4_t before = vsubq_s32(last, vdupq_n_s32(a.window > 0 ? a.window : INT32_MAX));
      float* sv = s + v * kLanes;
      F top = max[v];
      for (int j = 0; j < n; ++j) {
        F x = Checked(Load(sv + j * kRow));
        if (a.softcap > 0) x = Capped(x, a.softcap);
        if (masked) {
          const int32x4_t k = vdupq_n_s32(key + j);
          x = vbslq_f32(vandq_u32(vcleq_s32(k, last), vcgtq_s32(k, before)), x, Set(-kInf));
        }
        top = LargerNumber(x, top);
        Store(sv + j * kRow, x);
      }
      // A lane that has seen no key yet has the maximum -inf; subtract 0 there instead of making NaN.
      const F shift = vbslq_f32(vceqq_f32(top, Set(-kInf)), Set(0), top);
      F total = Set(0);
      for (int j = 0; j < n; ++j) {
        const F e = ExpNeg(vsubq_f32(Load(sv + j * kRow), shift));
        total = vaddq_f32(total, e);
        Store(sv + j * kRow, e);
      }
      rescale[v] = ExpNeg(vsubq_f32(max[v], shift));
      sum[v] = Fma(sum[v], rescale[v], total);
      max[v] = top;
    }
  }

  // Columns [d, d + 4) of the values.
  void ValueColumns(int d, int n, const F* rescale) {
    F acc[kLanes][kVectors];
    for (int i = 0; i < kLanes; ++i)
      for (int v = 0; v < kVectors; ++v) acc[i][v] = vmulq_f32(Load(ot + (d + i) * kRow + v * kLanes), rescale[v]);
    const float *vp = block + d, *sp = s;
    for (int j = 0; j < n; ++j, vp += kBlockStride, sp += kRow) AddLanes(sp, Load(vp), acc);
    for (int i = 0; i < kLanes; ++i)
      for (int v = 0; v < kVectors; ++v) Store(ot + (d + i) * kRow + v * kLanes, acc[i][v]);
  }

  void Run() {
    const int64_t base = (head / (a.n_heads / a.n_kv_heads)) * a.kv_head_stride;
    LoadQueries();
    for (int v = 0; v < kVectors; ++v) {
      max[v] = Set(-kInf);
      sum[v] = Set(0);
    }
    for (int i = 0; i < a.head_dim * kRow; i += kLanes) Store(ot + i, Set(0));
    const int p0 = a.position + token, last = a.position + token_end - 1;
    // Blocks end at multiples of kBlockKeys of the absolute slot: a query's arithmetic is the same however the prompt is cut
    // into chunks, tiles and threads.
    int n = 0;
    for (int key = a.window > 0 && p0 + 1 > a.window ? p0 + 1 - a.window : 0; key <= last; key += n) {
      n = kBlockKeys - key % kBlockKeys;
      if (n > last + 1 - key) n = last + 1 - key;
      F rescale[kVectors];
      Widen(reinterpret_cast<const Kv*>(KeysAt(a, key)) + base + int64_t{key} * a.head_dim, n);
      Scores(n);
      Softmax(key, n, rescale);
      Widen(reinterpret_cast<const Kv*>(ValuesAt(a, key)) + base + int64_t{key} * a.head_dim, n);
      for (int d = 0; d < a.head_dim; d += kLanes) ValueColumns(d, n, rescale);
    }
    StoreOutputs();
  }
};

template <class Kv>
void PrefillItems(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  for (int64_t item = begin; item < end; ++item) {
    const PrefillItem it = PrefillItemAt(a, item);
    float *qt = scratch, *ot = qt + a.head_dim * kRow, *s = ot + a.head_dim * kRow;
    PrefillTile<Kv> tile = {a, it.head, it.token, it.token_end, qt, ot, s, s + kBlockKeys * kRow, {}, {}};
    tile.Run();
  }
}

void Prefill(const AttentionArgs& a, int64_t begin, int64_t end, float* scratch) {
  if (a.kv_type == KvType::kF16) PrefillItems<uint16_t>(a, begin, end, scratch);
  else PrefillItems<float>(a, begin, end, scratch);
}

// ---- decode --------------------------------------------------------------------------------------------------------------

// Scores of R query rows [R][D] against 4 keys.
template <int R, class Kv>
inline void ScoreFour(const float* q, const Kv* const* k, int dim, float* s) {
  F acc[R][4];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < 4; ++j) acc[r][j] = Set(0);
  for (int d = 0; d < dim; d += kLanes) {
    for (int j = 0; j < 4; ++j) {
      const F kv = LoadKv(k[j] + d);
      for (int r = 0; r < R; ++r) acc[r][j] = Fma(Load(q + r * dim + d), kv, acc[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) Store(s + r * kDecodeChunk, vpaddq_f32(vpaddq_f32(acc[r][0], acc[r][1]), vpaddq_f32(acc[r][2], acc[r][3])));
}

// out[r][d, d + 4 C) = sum_j p[r][j] v[j][d ...]
template <int R, int C, class Kv>
inline void ValueSums(const float* p, const Kv* v, int n, int dim, float* const* out, int d) {
  F acc[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) acc[r][c] = Set(0);
  for (int j = 0; j < n; ++j) {
    for (int c = 0; c < C; ++c) {
      const F x = LoadKv(v + int64_t{j} * dim + d + c * kLanes);
      for (int r = 0; r < R; ++r) acc[r][c] = vfmaq_n_f32(acc[r][c], x, p[r * kDecodeChunk + j]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) Store(out[r] + d + c * kLanes, acc[r][c]);
}

template <int R, class Kv>
inline void ValueRows(const float* p, const Kv* v, int n, int dim, float* const* out) {
  int d = 0;
  for (; d + 8 * kLanes <= dim; d += 8 * kLanes) ValueSums<R, 8>(p, v, n, dim, out, d);
  for (; d < dim; d += 2 * kLanes) ValueSums<R, 2>(p, v, n, dim, out, d);
}

struct RowSoftmax {
  float max, sum;
};
// s[0, n): scores to exponentials, in place.
inline RowSoftmax SoftmaxRow(float* s, int n, float softcap) {
  for (int j = n; j % kLanes != 0; ++j) s[j] = -kInf;  // fills the last register
  F top = Set(-kInf), total = Set(0);
  const int32x4_t lane = {0, 1, 2, 3};
  for (int j = 0; j < n; j += kLanes) {
    const F raw = Load(s + j);
    F x = Checked(raw);
    if (softcap > 0) x = Capped(x, softcap);
    if (j + kLanes > n) x = vbslq_f32(vcgtq_s32(vdupq_n_s32(n - j), lane), x, raw);  // the filling is -inf on purpose
    top = LargerNumber(x, top);
    Store(s + j, x);
  }
  const float max = vmaxnmvq_f32(top);
  for (int j = 0; j < n; j += kLanes) {
    const F e = ExpNeg(vsubq_f32(Load(s + j), Set(max)));
    total = vaddq_f32(total, e);
    Store(s + j, e);
  }
  return {max, vaddvq_f32(total)};
}

void ScaleInto(float* x, float scale, int n) {
  for (int d = 0; d < n; d += kLanes) Store(x + d, vmulq_n_f32(Load(x + d), scale));
}

template <int R, class Kv>
inline void ScoreRows(const float* q, const Kv* k, int n, int dim, float* s) {
  for (int j = 0; j < n; j += 4) {
    const Kv* row[4];  // the last keys repeat: their extra scores lie past n and are never used
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
    const int64_t base = it.kv_head * a.kv_head_stride + int64_t{it.key} * dim;
    const Kv* k = reinterpret_cast<const Kv*>(KeysAt(a, it.key)) + base;
    const Kv* v = reinterpret_cast<const Kv*>(ValuesAt(a, it.key)) + base;
    for (int i = 0; i < group * dim; i += kLanes) Store(q + i, vmulq_n_f32(Load(a.q + int64_t{head} * dim + i), a.scale));
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
    for (int d = 0; d < dim; d += kLanes) Store(out + d, Set(0));
    for (int c = 0; c < chunks; ++c) {
      const F w = ExpNeg(Set(p[c * stride] - max));
      sum += vgetq_lane_f32(w, 0) * p[c * stride + 1];
      const float* acc = p + c * stride + 16;
      for (int d = 0; d < dim; d += kLanes) Store(out + d, Fma(w, Load(acc + d), Load(out + d)));
    }
    ScaleInto(out, 1.0f / sum, dim);
  }
}

}  // namespace

extern const AttentionKernels kAttentionNeonDot;
const AttentionKernels kAttentionNeonDot = {Prefill, Decode, Merge, "attention_neon_dotprod"};

}  // namespace slm::kernels
