// RMSNorm in AVX-512: one pass for the sum of squares, one that scales.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/norm/contract.h"
#include "kernels/norm/squares_avx512.h"

namespace slm::kernels {
namespace {

using F = __m512;
constexpr int kWidth = 16;
inline F Set(float v) { return _mm512_set1_ps(v); }
inline F Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
// n < 16 values; the rest reads as zero and is not written.
inline F LoadTail(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p); }
inline void StoreTail(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v); }

void ScaleRow(const float* x, const float* w, float r, int n, float* y) {
  int i = 0;
  const F vr = Set(r);
  for (; i + kWidth <= n; i += kWidth) Store(y + i, _mm512_mul_ps(_mm512_mul_ps(Load(x + i), vr), Load(w + i)));
  if (i < n) StoreTail(y + i, _mm512_mul_ps(_mm512_mul_ps(LoadTail(x + i, n - i), vr), LoadTail(w + i, n - i)), n - i);
}

void RmsNorm(const float* x, const float* w, float eps, int n, float* y) {
  SumOfSquares squares;
  int i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth)
    for (int j = 0; j < 2; ++j) squares.Add(j, Load(x + i + j * kWidth));
  for (int j = 0; i < n; ++j, i += kWidth) squares.Add(j, n - i >= kWidth ? Load(x + i) : LoadTail(x + i, n - i));
  ScaleRow(x, w, squares.InverseRms(eps, n), n, y);
}

void AddRmsNorm(float* x, const float* d, const float* w, float eps, int n, float* y) {
  SumOfSquares squares;
  int i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth)
    for (int j = 0; j < 2; ++j) {
      const F v = _mm512_add_ps(Load(x + i + j * kWidth), Load(d + i + j * kWidth));
      Store(x + i + j * kWidth, v);
      squares.Add(j, v);
    }
  for (int j = 0; i < n; ++j, i += kWidth) {
    const bool whole = n - i >= kWidth;
    const F v = whole ? _mm512_add_ps(Load(x + i), Load(d + i)) : _mm512_add_ps(LoadTail(x + i, n - i), LoadTail(d + i, n - i));
    if (whole) Store(x + i, v);
    else StoreTail(x + i, v, n - i);
    squares.Add(j, v);
  }
  ScaleRow(x, w, squares.InverseRms(eps, n), n, y);
}

}  // namespace

extern const NormKernels kNormAvx512Vnni;
const NormKernels kNormAvx512Vnni = {RmsNorm, AddRmsNorm, "norm_avx512vnni"};

}  // namespace slm::kernels
