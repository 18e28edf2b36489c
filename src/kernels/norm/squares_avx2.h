// 1 / RMS of a row in AVX2, in the order of squares_ref.h; shared by the norms and by those that quantize what they compute.
//
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace slm::kernels {
namespace {

struct SumOfSquares {
  __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  // v: values j * 8 to j * 8 + 7 of a block of 32; past the row they are zero or not added.
  void Add(int j, __m256 v) { s[j] = _mm256_fmadd_ps(v, v, s[j]); }
  float InverseRms(float eps, int n) const {
    const __m256 s8 = _mm256_add_ps(_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[1], s[3]));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    const float sum = _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
    return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(sum / static_cast<float>(n) + eps)));
  }
};

}  // namespace
}  // namespace slm::kernels
