// Rotary embedding in AVX2: both pairings; what is left over runs in scalar code.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/rope/contract.h"

namespace slm::kernels {
namespace {

using F = __m256;
constexpr int kWidth = 8;
inline F Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
inline void RotatePairs(float* x, F c, F s) {
  // [u0 v0 u1 v1 ...] * c + [v0 u0 v1 u1 ...] * (-s, +s)
  const F v = Load(x);
  Store(x, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(_mm256_permute_ps(v, 0xb1), s)));
}
// Each of 4 values twice: [a a b b c c d d].
inline F Twice(const float* p) {
  const __m128 h = _mm_loadu_ps(p);
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_unpacklo_ps(h, h)), _mm_unpackhi_ps(h, h), 1);
}

void RotateOne(float* p, int partner, float c, float s) {
  const float u = p[0], v = p[partner];
  p[0] = u * c - v * s;
  p[partner] = v * c + u * s;
}

void RotateHalves(float* x, int half, const float* cos, const float* sin) {
  int i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    const F u = Load(x + i), v = Load(x + half + i), c = Load(cos + i), s = Load(sin + i);
    Store(x + i, _mm256_fmsub_ps(u, c, _mm256_mul_ps(v, s)));
    Store(x + half + i, _mm256_fmadd_ps(v, c, _mm256_mul_ps(u, s)));
  }
  for (; i < half; ++i) RotateOne(x + i, half, cos[i], sin[i]);
}

void RotateNeighbours(float* x, int half, const float* cos, const float* sin) {
  int i = 0;
  for (; i + kWidth / 2 <= half; i += kWidth / 2) RotatePairs(x + 2 * i, Twice(cos + i), Twice(sin + i));
  for (; i < half; ++i) RotateOne(x + 2 * i, 1, cos[i], sin[i]);
}

void Rotate(const RopeArgs& a) {
  for (int h = 0; h < a.n_heads; ++h) {
    float* x = a.x + int64_t{h} * a.head_dim;
    if (a.interleaved) RotateNeighbours(x, a.rotary_dim / 2, a.cos, a.sin);
    else RotateHalves(x, a.rotary_dim / 2, a.cos, a.sin);
  }
}

}  // namespace

extern const RopeKernels kRopeAvx2;
const RopeKernels kRopeAvx2 = {Rotate, "rope_avx2"};

}  // namespace slm::kernels
