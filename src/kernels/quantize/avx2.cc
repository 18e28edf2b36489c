// Activation quantization for AVX2: 32 values are four vectors; sources (plain, normed, gated) differ only in how they load.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/activation/math_avx2.h"
#include "kernels/norm/squares_avx2.h"
#include "kernels/packed/contract.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {
namespace {

struct Plain {
  const float* x;
  __m256 Load(int64_t i) const { return _mm256_loadu_ps(x + i); }
};
struct Normed {
  const float *x, *w;
  float* y;
  __m256 r;
  __m256 Load(int64_t i) const {
    const __m256 v = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), r), _mm256_loadu_ps(w + i));
    if (y != nullptr) _mm256_storeu_ps(y + i, v);
    return v;
  }
};
template <int kAct>
struct Gated {
  const float *gate, *up;
  __m256 Load(int64_t i) const {
    const __m256 x = _mm256_loadu_ps(gate + i);
    const __m256 v = kAct == 0 ? Silu(x) : kAct == 1 ? GeluTanh(x) : GeluErf(x);
    return _mm256_mul_ps(v, _mm256_loadu_ps(up + i));
  }
};

int32_t Largest(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
// 32 codes in order and their sum and sum of squares. |x| < 128, rounded to the nearest even.
struct Codes {
  __m256i q;
  int32_t sum, squares;
};
Codes Round8(const __m256 (&x)[4]) {
  __m256i v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm256_cvtps_epi32(_mm256_round_ps(x[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  const __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]), ones = _mm256_set1_epi16(1);
  const __m256i both = _mm256_hadd_epi32(_mm256_madd_epi16(_mm256_add_epi16(a, b), ones),
                                         _mm256_add_epi32(_mm256_madd_epi16(a, a), _mm256_madd_epi16(b, b)));
  const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  const int64_t pair = _mm_cvtsi128_si64(_mm_hadd_epi32(half, half));
  // The packs work inside 128-bit halves: dwords come out as 0 4 1 5 2 6 3 7 in units of four bytes and are put in order once.
  const __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return {q, static_cast<int32_t>(pair), static_cast<int32_t>(pair >> 32)};
}

// What scale * q leaves of x, as the row's next residual block.
[[gnu::noinline]] void AddResidual(const __m256 (&x)[4], float largest, int64_t block, const Q8Row& row) {
  const float scale = row.scale[block];
  const __m256 step = _mm256_set1_ps(scale), inverse = _mm256_set1_ps(127.0f * 254 / largest);
  __m256 left[4];
  for (int i = 0; i < 4; ++i) {
    const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row.q + block * kBlockK + i * 8));
    left[i] = _mm256_mul_ps(_mm256_fnmadd_ps(step, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), x[i]), inverse);
  }
  const Codes codes = Round8(left);
  ResidualBlock& r = row.residual[(*row.residual_count)++];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(r.q), codes.q);
  r.scale = scale / 254.0f;
  r.sum = codes.sum;
  r.block = static_cast<int32_t>(block);
}

// The largest |x| is found on the bits of |x| as integers: NaN and Inf compare above every number, so one test finds them.
void QuantizeBlock(const __m256 (&x)[4], int64_t block, const Q8Row& row) {
  const __m256i size = _mm256_set1_epi32(0x7fffffff);
  __m256i bits = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(x[i]), size));
  const int32_t top = Largest(bits);
  float largest;
  __builtin_memcpy(&largest, &top, 4);
  __m256i* q = reinterpret_cast<__m256i*>(row.q + block * kBlockK);
  if (top >= 0x7f800000 || largest < kTinyBlock) {
    _mm256_storeu_si256(q, _mm256_setzero_si256());
    row.scale[block] = top >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
    row.sum[block] = 0;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  const Codes codes =
      Round8({_mm256_mul_ps(x[0], inverse), _mm256_mul_ps(x[1], inverse), _mm256_mul_ps(x[2], inverse), _mm256_mul_ps(x[3], inverse)});
  _mm256_storeu_si256(q, codes.q);
  row.scale[block] = largest / 127.0f;
  row.sum[block] = codes.sum;
  if (codes.squares < kPeakedSquares) AddResidual(x, largest, block, row);
}

template <class Source>
void QuantizeBlocks(const Source& source, int64_t n_blocks, int64_t first, const Q8Row& row) {
  for (int64_t b = 0; b < n_blocks; ++b) {
    const __m256 x[4] = {source.Load(b * kBlockK), source.Load(b * kBlockK + 8), source.Load(b * kBlockK + 16),
                         source.Load(b * kBlockK + 24)};
    QuantizeBlock(x, first + b, row);
  }
}

// The last n % 32 values of a vector, followed by zeros, so that blocks are always whole.
struct Tail {
  float v[kBlockK];
  Tail(const float* x, int n) {
    for (int i = 0; i < kBlockK; ++i) v[i] = i < n % kBlockK ? x[n / kBlockK * kBlockK + i] : 0.0f;
  }
};

// Blocks after the whole ones: `tail` (when n is no multiple of 32) and zeros up to PaddedK(n).
template <class Source>
void Finish(const Source& tail, int n, const Q8Row& row) {
  const int64_t whole = n / kBlockK, n_blocks = PaddedK(n) / kBlockK;
  if (n % kBlockK != 0) QuantizeBlocks(tail, 1, whole, row);
  const __m256 zeros[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t b = (n + kBlockK - 1) / kBlockK; b < n_blocks; ++b) QuantizeBlock(zeros, b, row);
}

void QuantizeRow(const float* x, int n, Q8Row row) {
  *row.residual_count = 0;
  QuantizeBlocks(Plain{x}, n / kBlockK, 0, row);
  Finish(Plain{Tail(x, n).v}, n, row);
}

void RmsNormQuantize(const float* x, const float* w, float eps, int n, float* y, Q8Row row) {
  const Tail x_tail(x, n), w_tail(w, n);
  SumOfSquares squares;
  for (int i = 0; i < n / kBlockK * kBlockK; i += kBlockK)
    for (int j = 0; j < 4; ++j) squares.Add(j, _mm256_loadu_ps(x + i + j * 8));
  for (int j = 0; j < 4; ++j) squares.Add(j, _mm256_loadu_ps(x_tail.v + j * 8));
  const __m256 r = _mm256_set1_ps(squares.InverseRms(eps, n));
  *row.residual_count = 0;
  QuantizeBlocks(Normed{x, w, y, r}, n / kBlockK, 0, row);
  float last[kBlockK];
  Finish(Normed{x_tail.v, w_tail.v, last, r}, n, row);
  if (y != nullptr)
    for (int i = 0; i < n % kBlockK; ++i) y[n / kBlockK * kBlockK + i] = last[i];
}

template <int kAct>
void Gate(const float* gate, const float* up, int n, const Q8Row& row) {
  *row.residual_count = 0;
  QuantizeBlocks(Gated<kAct>{gate, up}, n / kBlockK, 0, row);
  Finish(Gated<kAct>{Tail(gate, n).v, Tail(up, n).v}, n, row);
}

void GateQuantize(const float* gate, const float* up, int act, int n, Q8Row row) {
  if (act == 0) return Gate<0>(gate, up, n, row);
  if (act == 1) return Gate<1>(gate, up, n, row);
  Gate<2>(gate, up, n, row);
}

}  // namespace

extern const QuantizeKernels kQuantizeAvx2;
const QuantizeKernels kQuantizeAvx2 = {QuantizeRow, RmsNormQuantize, GateQuantize, "quantize_s8_f32_avx2"};

}  // namespace slm::kernels
