// Activation quantization for AVX-512: 32 values are two vectors; sources (plain, normed, gated) differ only in how they load.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/activation/math_avx512.h"
#include "kernels/norm/squares_avx512.h"
#include "kernels/packed/contract.h"
#include "kernels/packed/prefetch.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {
namespace {

__mmask16 Mask(int64_t left) { return static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1); }

struct Plain {
  const float* x;
  __m512 Load(int64_t i, __mmask16 some) const { return _mm512_maskz_loadu_ps(some, x + i); }
};
struct Normed {
  const float *x, *w;
  float* y;
  __m512 r;
  __m512 Load(int64_t i, __mmask16 some) const {
    const __m512 v = _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(some, x + i), r), _mm512_maskz_loadu_ps(some, w + i));
    if (y != nullptr) _mm512_mask_storeu_ps(y + i, some, v);
    return v;
  }
};
template <int kAct>
struct Gated {
  const float *gate, *up;
  __m512 Load(int64_t i, __mmask16 some) const {
    const __m512 x = _mm512_maskz_loadu_ps(some, gate + i);
    const __m512 v = kAct == 0 ? Silu(x) : kAct == 1 ? GeluTanh(x) : GeluErf(x);
    return _mm512_mul_ps(v, _mm512_maskz_loadu_ps(some, up + i));
  }
};

__m256i Round8(__m512 a, __m512 b) {  // to the nearest even; |a|, |b| < 128
  const __m512i i = _mm512_cvt_roundps_epi32(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512i j = _mm512_cvt_roundps_epi32(b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(i)), _mm512_cvtepi32_epi8(j), 1);
}

// Sums of 32 codes and of their squares in 8 lanes: a lane of 128 bits holds {sum, sum, squares, squares}.
__m256i SumsOf(__m256i q) {
  const __m256i size = _mm256_abs_epi8(q), zero = _mm256_setzero_si256();
  return _mm256_hadd_epi32(_mm256_dpbusd_epi32(zero, _mm256_set1_epi8(1), q), _mm256_dpbusd_epi32(zero, size, size));
}
// The sums of two blocks: {sum, squares, sum, squares}.
__m128i SumsOfTwo(__m256i a, __m256i b) {
  const __m256i both = _mm256_hadd_epi32(SumsOf(a), SumsOf(b));
  return _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
}

// What scale * q leaves of x, as the row's next residual block.
[[gnu::noinline]] void AddResidual(__m512 x0, __m512 x1, float largest, int64_t block, const Q8Row& row) {
  const float scale = row.scale[block];
  const __m512 step = _mm512_set1_ps(scale), inverse = _mm512_set1_ps(127.0f * 254 / largest);
  const __m128i* q = reinterpret_cast<const __m128i*>(row.q + block * kBlockK);
  const __m512 left0 = _mm512_fnmadd_ps(step, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(q))), x0);
  const __m512 left1 = _mm512_fnmadd_ps(step, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(q + 1))), x1);
  const __m256i codes = Round8(_mm512_mul_ps(left0, inverse), _mm512_mul_ps(left1, inverse));
  ResidualBlock& r = row.residual[(*row.residual_count)++];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(r.q), codes);
  r.scale = scale / 254.0f;
  r.sum = _mm_cvtsi128_si32(SumsOfTwo(codes, codes));
  r.block = static_cast<int32_t>(block);
}

constexpr int kGroup = 16;  // blocks that are quantized together: their maxima, scales and sums are the lanes of one register

// y[i] = max over the lanes of x[i].
__m512i MaximaOf(const __m512i* x) {
  __m512i t[8];
  for (int i = 0; i < 8; ++i)  // lanes of 128 bits: {2i, 2i + 1, 2i, 2i + 1}
    t[i] = _mm512_max_epi32(_mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]));
  for (int i = 0; i < 4; ++i)  // {4i ... 4i + 3}
    t[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(t[2 * i], t[2 * i + 1]), _mm512_unpackhi_epi64(t[2 * i], t[2 * i + 1]));
  for (int i = 0; i < 2; ++i)  // {8i ... 8i + 3, the same, 8i + 4 ... 8i + 7, the same}
    t[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(t[2 * i], t[2 * i + 1], 0x44), _mm512_shuffle_i32x4(t[2 * i], t[2 * i + 1], 0xee));
  return _mm512_max_epi32(_mm512_shuffle_i32x4(t[0], t[1], 0x88), _mm512_shuffle_i32x4(t[0], t[1], 0xdd));
}

// Quantizes blocks [block, block + count) of the row, count <= kGroup and even, from x [count][32].
// The largest |x| is found on the bits of |x| as integers: NaN and Inf compare above every number, so one test finds them. A factor
// of 0 then makes every code 0 (0 * x is 0 or NaN, and NaN becomes the integer 0x80000000, whose low byte is 0).
void QuantizeGroup(const float* x, int64_t block, int count, const Q8Row& row) {
  // Rows follow each other: what is fetched past the end of this one is the next.
  for (int i = 0; i < kGroup * kBlockK; i += kLine) FetchToWrite(row.q + (block + kGroup) * kBlockK + i);
  FetchToWrite(row.scale + block + kGroup);
  FetchToWrite(row.sum + block + kGroup);
  const __m512i size = _mm512_set1_epi32(0x7fffffff);
  __m512i bits[kGroup];
  for (int i = 0; i < count; ++i)
    bits[i] = _mm512_max_epi32(_mm512_and_si512(_mm512_load_si512(x + i * kBlockK), size),
                               _mm512_and_si512(_mm512_load_si512(x + i * kBlockK + 16), size));
  for (int i = count; i < kGroup; ++i) bits[i] = _mm512_setzero_si512();
  const __m512i top = MaximaOf(bits);
  const __m512 largest = _mm512_castsi512_ps(top), top_code = _mm512_set1_ps(127.0f);
  const __mmask16 bad = _mm512_cmpge_epi32_mask(top, _mm512_set1_epi32(0x7f800000)), some = Mask(count);
  const __mmask16 good = _mm512_mask_cmp_ps_mask(static_cast<__mmask16>(~bad), largest, _mm512_set1_ps(kTinyBlock), _CMP_GE_OQ);
  alignas(64) float inverse[kGroup];
  _mm512_store_ps(inverse, _mm512_maskz_div_ps(good, top_code, largest));
  _mm512_mask_storeu_ps(row.scale + block, some,
                        _mm512_mask_mov_ps(_mm512_maskz_div_ps(good, largest, top_code), bad, _mm512_set1_ps(__builtin_nanf(""))));
  // {sum, squares} of eight blocks each, put together in registers: a load of what narrower stores have just written waits for them.
  __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; i += 2) {
    if (i >= count) break;
    __m256i codes[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512 factor = _mm512_set1_ps(inverse[i + j]);
      const float* from = x + (i + j) * kBlockK;
      codes[j] = Round8(_mm512_mul_ps(_mm512_load_ps(from), factor), _mm512_mul_ps(_mm512_load_ps(from + 16), factor));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row.q + (block + i + j) * kBlockK), codes[j]);
    }
    const __m512i two = _mm512_broadcast_i32x4(SumsOfTwo(codes[0], codes[1]));
    sums[i / 8] = _mm512_mask_mov_epi32(sums[i / 8], static_cast<__mmask16>(0xf << (i % 8 * 2)), two);
  }
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i first = sums[0], second = sums[1];
  _mm512_mask_storeu_epi32(row.sum + block, some, _mm512_permutex2var_epi32(first, even, second));
  const __m512i squares = _mm512_permutex2var_epi32(first, _mm512_or_si512(even, _mm512_set1_epi32(1)), second);
  unsigned peaked = _mm512_mask_cmplt_epi32_mask(good, squares, _mm512_set1_epi32(kPeakedSquares));
  if (peaked == 0) return;
  alignas(64) float top_of[kGroup];
  _mm512_store_ps(top_of, largest);
  for (; peaked != 0; peaked &= peaked - 1) {
    const int i = __builtin_ctz(peaked);
    AddResidual(_mm512_load_ps(x + i * kBlockK), _mm512_load_ps(x + i * kBlockK + 16), top_of[i], block + i, row);
  }
}

template <class Source>
void QuantizeFrom(const Source& source, int n, const Q8Row& row) {
  const int64_t n_blocks = PaddedK(n) / kBlockK;
  alignas(64) float x[kGroup * kBlockK];
  *row.residual_count = 0;
  for (int64_t b = 0; b < n_blocks; b += kGroup) {
    const int count = static_cast<int>(n_blocks - b < kGroup ? n_blocks - b : kGroup);
    for (int64_t i = 0; i < count * kBlockK; i += 16) _mm512_store_ps(x + i, source.Load(b * kBlockK + i, Mask(n - b * kBlockK - i)));
    QuantizeGroup(x, b, count, row);
  }
}

void QuantizeRow(const float* x, int n, Q8Row row) { QuantizeFrom(Plain{x}, n, row); }

void RmsNormQuantize(const float* x, const float* w, float eps, int n, float* y, Q8Row row) {
  SumOfSquares squares;
  for (int64_t i = 0; i < n; i += kBlockK)
    for (int j = 0; j < 2; ++j) squares.Add(j, _mm512_maskz_loadu_ps(Mask(n - i - j * 16), x + i + j * 16));
  QuantizeFrom(Normed{x, w, y, _mm512_set1_ps(squares.InverseRms(eps, n))}, n, row);
}

void GateQuantize(const float* gate, const float* up, int act, int n, Q8Row row) {
  if (act == 0) return QuantizeFrom(Gated<0>{gate, up}, n, row);
  if (act == 1) return QuantizeFrom(Gated<1>{gate, up}, n, row);
  QuantizeFrom(Gated<2>{gate, up}, n, row);
}

}  // namespace

extern const QuantizeKernels kQuantizeAvx512Vnni;
const QuantizeKernels kQuantizeAvx512Vnni = {QuantizeRow, RmsNormQuantize, GateQuantize, "quantize_s8_f32_avx512vnni"};

}  // namespace slm::kernels
