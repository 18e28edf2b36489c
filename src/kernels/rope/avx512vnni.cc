// Rotary embedding in AVX-512: both pairings; what is left over runs in scalar code.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/rope/contract.h"

namespace slm::kernels {
namespace {

using F = __m512;
constexpr int kWidth = 16;
inline F Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline void RotatePairs(float* x, F c, F s) {
  // [u0 v0 u1 v1 ...] * c + [v0 u0 v1 u1 ...] * (-s, +s)
  const F v = Load(x);
  Store(x, _mm512_fmaddsub_ps(v, c, _mm512_mul_ps(_mm512_permute_ps(v, 0xb1), s)));
}
// Each of 8 values twice: [a a b b ...].
inline F Twice(const float* p) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
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
    Store(x + i, _mm512_fmsub_ps(u, c, _mm512_mul_ps(v, s)));
    Store(x + half + i, _mm512_fmadd_ps(v, c, _mm512_mul_ps(u, s)));
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

extern const RopeKernels kRopeAvx512Vnni;
const RopeKernels kRopeAvx512Vnni = {Rotate, "rope_avx512vnni"};

}  // namespace slm::kernels
