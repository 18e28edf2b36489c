// Arithmetic on one register of floats that attention is made of, in AVX-512: exp, tanh, the score check, a transposition.
//
// exp: x = n ln2 + r, exp(r) = 1 + r + r^2 P(r) with our own minimax P (relative error 3e-9), at most 2 ulp; below -87 it is 0.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace slm::kernels {
namespace {

using F = __m512;
constexpr int kLanes = 16;
constexpr float kInf = __builtin_inff();

inline F Set(float v) { return _mm512_set1_ps(v); }
inline F Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline __mmask16 Left(int n) { return n >= kLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1u << n) - 1); }

// Holds a value in a register. Otherwise GCC reloads it as the memory operand of each FMA, and the loads become the limit: a
// third of the prefill speed.
inline F Held(F v) {
  __asm__("" : "+v"(v));
  return v;
}

// exp(x) for x <= 0; NaN stays NaN.
inline F ExpNeg(F x) {
  const __mmask16 seen = _mm512_cmp_ps_mask(x, Set(-87.0f), _CMP_NLT_UQ);
  x = _mm512_max_ps(Set(-87.0f), x);
  const F n = _mm512_roundscale_ps(_mm512_mul_ps(x, Set(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  F r = Fma(n, Set(-0x1.62e4p-1f), x);  // ln2 in two parts: the first has 13 bits, so n * it is exact
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  F q = Fma(Set(0x1.6a243p-10f), r, Set(0x1.1239e4p-7f));
  q = Fma(q, r, Set(0x1.5558f2p-5f));
  q = Fma(q, r, Set(0x1.555492p-3f));
  q = Fma(q, r, Set(0x1.fffffcp-2f));
  q = Fma(_mm512_mul_ps(r, r), q, r);
  return _mm512_maskz_scalef_ps(seen, _mm512_add_ps(q, Set(1.0f)), n);
}

inline F Tanh(F x) {
  const F a = _mm512_abs_ps(x), z = _mm512_mul_ps(x, x);
  F q = Fma(Set(-0.00554311f), z, Set(0.02049664f));
  q = Fma(q, z, Set(-0.05369713f));
  q = Fma(q, z, Set(0.1333095f));
  q = Fma(q, z, Set(-0.33333265f));
  const F small = Fma(_mm512_mul_ps(z, x), q, x);
  const F e = ExpNeg(_mm512_mul_ps(a, Set(-2.0f)));
  const F large = _mm512_div_ps(_mm512_sub_ps(Set(1.0f), e), _mm512_add_ps(Set(1.0f), e));
  const F signed_large = _mm512_or_ps(large, _mm512_and_ps(Set(-0.0f), x));
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, Set(0.625f), _CMP_LT_OQ), signed_large, small);
}

// A score that is not finite becomes NaN before the soft cap or the softmax could hide it.
inline F Checked(F s) { return _mm512_add_ps(s, _mm512_sub_ps(s, s)); }
inline F Capped(F s, float cap) { return _mm512_mul_ps(Set(cap), Tanh(_mm512_div_ps(s, Set(cap)))); }

// Transposes 16 rows of 16 values.
inline void Transpose(F* r) {
  F t[16];
  for (int i = 0; i < 16; i += 4) {
    const F a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    const F c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(c)));
    t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(c)));
    t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(b), _mm512_castps_pd(d)));
    t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(b), _mm512_castps_pd(d)));
  }
  for (int i = 0; i < 4; ++i) {  // t[4 g + i] holds columns i, i + 4, i + 8, i + 12 of rows 4 g ... 4 g + 3
    const F lo = _mm512_shuffle_f32x4(t[i], t[4 + i], 0x88), hi = _mm512_shuffle_f32x4(t[i], t[4 + i], 0xdd);
    const F lo2 = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0x88), hi2 = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0xdd);
    r[i] = _mm512_shuffle_f32x4(lo, lo2, 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(lo, lo2, 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(hi, hi2, 0x88);
    r[i + 12] = _mm512_shuffle_f32x4(hi, hi2, 0xdd);
  }
}

}  // namespace
}  // namespace slm::kernels
