// Arithmetic on one register of floats that attention is made of, in AVX2 with FMA and F16C: exp, tanh, the score check, a transposition.
//
// exp: x = n ln2 + r, exp(r) = 1 + r + r^2 P(r) with our own minimax P (relative error 3e-9), at most 2 ulp; below -87 it is 0.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace slm::kernels {
namespace {

using F = __m256;
constexpr int kLanes = 8;
constexpr float kInf = __builtin_inff();

inline F Set(float v) { return _mm256_set1_ps(v); }
inline F Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
inline F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

// Holds a value in a register. Otherwise GCC reloads it as the memory operand of each FMA, and the loads become the limit: a
// third of the prefill speed.
inline F Held(F v) {
  __asm__("" : "+x"(v));
  return v;
}

// exp(x) for x <= 0; NaN stays NaN.
inline F ExpNeg(F x) {
  const F seen = _mm256_cmp_ps(x, Set(-87.0f), _CMP_NLT_UQ);
  x = _mm256_max_ps(Set(-87.0f), x);
  const F n = _mm256_round_ps(_mm256_mul_ps(x, Set(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  F r = Fma(n, Set(-0x1.62e4p-1f), x);  // ln2 in two parts: the first has 13 bits, so n * it is exact
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  F q = Fma(Set(0x1.6a243p-10f), r, Set(0x1.1239e4p-7f));
  q = Fma(q, r, Set(0x1.5558f2p-5f));
  q = Fma(q, r, Set(0x1.555492p-3f));
  q = Fma(q, r, Set(0x1.fffffcp-2f));
  q = Fma(_mm256_mul_ps(r, r), q, r);
  const __m256i two_to_n = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(seen, _mm256_mul_ps(_mm256_add_ps(q, Set(1.0f)), _mm256_castsi256_ps(two_to_n)));
}

inline F Tanh(F x) {
  const F a = _mm256_andnot_ps(Set(-0.0f), x), z = _mm256_mul_ps(x, x);
  F q = Fma(Set(-0.00554311f), z, Set(0.02049664f));
  q = Fma(q, z, Set(-0.05369713f));
  q = Fma(q, z, Set(0.1333095f));
  q = Fma(q, z, Set(-0.33333265f));
  const F small = Fma(_mm256_mul_ps(z, x), q, x);
  const F e = ExpNeg(_mm256_mul_ps(a, Set(-2.0f)));
  const F large = _mm256_div_ps(_mm256_sub_ps(Set(1.0f), e), _mm256_add_ps(Set(1.0f), e));
  const F signed_large = _mm256_or_ps(large, _mm256_and_ps(Set(-0.0f), x));
  return _mm256_blendv_ps(signed_large, small, _mm256_cmp_ps(a, Set(0.625f), _CMP_LT_OQ));
}

// A score that is not finite becomes NaN before the soft cap or the softmax could hide it.
inline F Checked(F s) { return _mm256_add_ps(s, _mm256_sub_ps(s, s)); }
inline F Capped(F s, float cap) { return _mm256_mul_ps(Set(cap), Tanh(_mm256_div_ps(s, Set(cap)))); }

// Transposes 8 rows of 8 values.
inline void Transpose(F* r) {
  F t[8];
  for (int i = 0; i < 8; i += 4) {
    const F a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const F c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

}  // namespace
}  // namespace slm::kernels
