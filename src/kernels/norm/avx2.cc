// RMSNorm in AVX2: one pass for the sum of squares, one that scales.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/norm/contract.h"
#include "kernels/norm/squares_avx2.h"

namespace slm::kernels {
namespace {

using F = __m256;
constexpr int kWidth = 8;
inline F Set(float v) { return _mm256_set1_ps(v); }
inline F Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
// n < 8 values; the rest reads as zero and is not written.
inline __m256i TailMask(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F LoadTail(const float* p, int64_t n) { return _mm256_maskload_ps(p, TailMask(n)); }
inline void StoreTail(float* p, F v, int64_t n) { _mm256_maskstore_ps(p, TailMask(n), v); }

void ScaleRow(const float* x, const float* w, float r, int n, float* y) {
  int i = 0;
  const F vr = Set(r);
  for (; i + kWidth <= n; i += kWidth) Store(y + i, _mm256_mul_ps(_mm256_mul_ps(Load(x + i), vr), Load(w + i)));
  if (i < n) StoreTail(y + i, _mm256_mul_ps(_mm256_mul_ps(LoadTail(x + i, n - i), vr), LoadTail(w + i, n - i)), n - i);
}

void RmsNorm(const float* x, const float* w, float eps, int n, float* y) {
  SumOfSquares squares;
  int i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth)
    for (int j = 0; j < 4; ++j) squares.Add(j, Load(x + i + j * kWidth));
  for (int j = 0; i < n; ++j, i += kWidth) squares.Add(j, n - i >= kWidth ? Load(x + i) : LoadTail(x + i, n - i));
  ScaleRow(x, w, squares.InverseRms(eps, n), n, y);
}

void AddRmsNorm(float* x, const float* d, const float* w, float eps, int n, float* y) {
  SumOfSquares squares;
  int i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth)
    for (int j = 0; j < 4; ++j) {
      const F v = _mm256_add_ps(Load(x + i + j * kWidth), Load(d + i + j * kWidth));
      Store(x + i + j * kWidth, v);
      squares.Add(j, v);
    }
  for (int j = 0; i < n; ++j, i += kWidth) {
    const bool whole = n - i >= kWidth;
    const F v = whole ? _mm256_add_ps(Load(x + i), Load(d + i)) : _mm256_add_ps(LoadTail(x + i, n - i), LoadTail(d + i, n - i));
    if (whole) Store(x + i, v);
    else StoreTail(x + i, v, n - i);
    squares.Add(j, v);
  }
  ScaleRow(x, w, squares.InverseRms(eps, n), n, y);
}

}  // namespace

extern const NormKernels kNormAvx2;
const NormKernels kNormAvx2 = {RmsNorm, AddRmsNorm, "norm_avx2"};

}  // namespace slm::kernels
