// exp, tanh and the activations on one AVX2 vector: shared by the element-wise kernels and by those that quantize what they
// compute, so that a fused step gives the bits of the separate ones.
//
// exp: x = n ln2 + r, |r| <= ln2 / 2, exp(r) = 1 + r + r^2 P(r); P of degree 4, relative error 3e-9 before rounding, at most
// 2 ulp after it. tanh below 0.625 is x + x^3 P(x^2) (6e-9), above 1 - 2 / (exp(2x) + 1). erfc(z) = exp(-z^2) t P(t),
// t = 1 / (1 + 0.35 z), P of degree 9 (4e-9 on [0, 10.5]; beyond that the exponential is 0). The coefficients are
// our own weighted minimax fits. Every function hands NaN on: clamps keep the operand that is NaN.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <immintrin.h>
#include <stdint.h>

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
inline F Round(F v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// p * 2^n for |n| <= 250, in two factors so that the result may overflow to infinity or become subnormal.
inline F Scalb(F p, F n) {
  const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
  const F a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const F b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}
inline F Abs(F v) { return _mm256_andnot_ps(Set(-0.0f), v); }
inline F CopySign(F v, F sign) { return _mm256_or_ps(Abs(v), _mm256_and_ps(Set(-0.0f), sign)); }
// a < b ? yes : no
inline F WhereLess(F a, F b, F yes, F no) { return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }

inline F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }

inline F Exp(F x) {
  x = _mm256_max_ps(Set(-110.0f), _mm256_min_ps(Set(90.0f), x));  // 0 and infinity lie beyond; the second operand wins on NaN
  const F n = Round(_mm256_mul_ps(x, Set(1.44269504f)));
  F r = Fma(n, Set(-0x1.62e4p-1f), x);  // ln2 in two parts: the first has 13 bits, so n * it is exact
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  F q = Fma(Set(0x1.6a243p-10f), r, Set(0x1.1239e4p-7f));
  q = Fma(q, r, Set(0x1.5558f2p-5f));
  q = Fma(q, r, Set(0x1.555492p-3f));
  q = Fma(q, r, Set(0x1.fffffcp-2f));
  q = Fma(_mm256_mul_ps(r, r), q, r);
  return Scalb(_mm256_add_ps(q, Set(1.0f)), n);
}

inline F Tanh(F x) {
  const F a = Abs(x), z = _mm256_mul_ps(x, x);
  F q = Fma(Set(-0.00554311f), z, Set(0.02049664f));
  q = Fma(q, z, Set(-0.05369713f));
  q = Fma(q, z, Set(0.1333095f));
  q = Fma(q, z, Set(-0.33333265f));
  const F small = Fma(_mm256_mul_ps(z, a), q, a);
  const F e = Exp(_mm256_add_ps(a, a));
  const F large = _mm256_sub_ps(Set(1.0f), _mm256_div_ps(Set(2.0f), _mm256_add_ps(e, Set(1.0f))));
  return CopySign(WhereLess(a, Set(0.625f), small, large), x);
}

inline F Silu(F x) { return _mm256_div_ps(x, _mm256_add_ps(Set(1.0f), Exp(_mm256_sub_ps(Set(0), x)))); }

inline F GeluTanh(F x) {
  const F u2 = _mm256_mul_ps(_mm256_mul_ps(Set(1.5957691216f), x), Fma(_mm256_mul_ps(Set(0.044715f), x), x, Set(1.0f)));
  return _mm256_div_ps(x, _mm256_add_ps(Set(1.0f), Exp(_mm256_sub_ps(Set(0), u2))));
}

inline F GeluErf(F x) {
  const F z = _mm256_mul_ps(Abs(x), Set(0.70710678119f));
  const F t = _mm256_div_ps(Set(1.0f), Fma(z, Set(0.35f), Set(1.0f)));
  F q = Fma(Set(0.03615004f), t, Set(-0.14687018f));
  q = Fma(q, t, Set(0.15355796f));
  q = Fma(q, t, Set(0.00881435f));
  q = Fma(q, t, Set(0.05730401f));
  q = Fma(q, t, Set(0.16158799f));
  q = Fma(q, t, Set(0.14597048f));
  q = Fma(q, t, Set(0.1889819f));
  q = Fma(q, t, Set(0.19701354f));
  q = Fma(q, t, Set(0.19748991f));
  const F e = Exp(_mm256_mul_ps(_mm256_sub_ps(Set(0), z), z));
  const F half = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(Set(0.5f), q), t), e);  // erfc(|x| / sqrt 2) / 2
  return _mm256_mul_ps(x, WhereLess(x, Set(0), half, _mm256_sub_ps(Set(1.0f), half)));
}

}  // namespace
}  // namespace slm::kernels
