// exp, tanh and the activations on one NEON vector: shared by the element-wise kernels and by those that quantize what they
// compute, so that a fused step gives the bits of the separate ones.
//
// Method, errors and coefficients are those of math_avx2.h. FMAX and FMIN return NaN when either operand is NaN, so clamps hand
// it on. Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <arm_neon.h>
#include <stdint.h>

namespace slm::kernels {
namespace {

using F = float32x4_t;
constexpr int kWidth = 4;
inline F Set(float v) { return vdupq_n_f32(v); }
inline F Load(const float* p) { return vld1q_f32(p); }
inline void Store(float* p, F v) { vst1q_f32(p, v); }
// n < 4 values; the rest reads as zero and is not written.
inline F LoadTail(const float* p, int64_t n) {
  float lane[kWidth] = {};
  for (int64_t i = 0; i < n; ++i) lane[i] = p[i];
  return Load(lane);
}
inline void StoreTail(float* p, F v, int64_t n) {
  float lane[kWidth];
  Store(lane, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lane[i];
}
// p * 2^n for |n| <= 250, in two factors so that the result may overflow to infinity or become subnormal.
inline F Scalb(F p, F n) {
  const int32x4_t i = vcvtnq_s32_f32(n), half = vshrq_n_s32(i, 1), bias = vdupq_n_s32(127);
  const F a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  const F b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(i, half), bias), 23));
  return vmulq_f32(vmulq_f32(p, a), b);
}
inline F Abs(F v) { return vabsq_f32(v); }
inline F CopySign(F v, F sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, v); }
// a < b ? yes : no
inline F WhereLess(F a, F b, F yes, F no) { return vbslq_f32(vcltq_f32(a, b), yes, no); }

inline F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }

inline F Exp(F x) {
  x = vmaxq_f32(Set(-110.0f), vminq_f32(Set(90.0f), x));  // 0 and infinity lie beyond
  const F n = vrndnq_f32(vmulq_f32(x, Set(1.44269504f)));
  F r = Fma(n, Set(-0x1.62e4p-1f), x);  // ln2 in two parts: the first has 13 bits, so n * it is exact
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  F q = Fma(Set(0x1.6a243p-10f), r, Set(0x1.1239e4p-7f));
  q = Fma(q, r, Set(0x1.5558f2p-5f));
  q = Fma(q, r, Set(0x1.555492p-3f));
  q = Fma(q, r, Set(0x1.fffffcp-2f));
  q = Fma(vmulq_f32(r, r), q, r);
  return Scalb(vaddq_f32(q, Set(1.0f)), n);
}

inline F Tanh(F x) {
  const F a = Abs(x), z = vmulq_f32(x, x);
  F q = Fma(Set(-0.00554311f), z, Set(0.02049664f));
  q = Fma(q, z, Set(-0.05369713f));
  q = Fma(q, z, Set(0.1333095f));
  q = Fma(q, z, Set(-0.33333265f));
  const F small = Fma(vmulq_f32(z, a), q, a);
  const F e = Exp(vaddq_f32(a, a));
  const F large = vsubq_f32(Set(1.0f), vdivq_f32(Set(2.0f), vaddq_f32(e, Set(1.0f))));
  return CopySign(WhereLess(a, Set(0.625f), small, large), x);
}

inline F Silu(F x) { return vdivq_f32(x, vaddq_f32(Set(1.0f), Exp(vnegq_f32(x)))); }

inline F GeluTanh(F x) {
  const F u2 = vmulq_f32(vmulq_f32(Set(1.5957691216f), x), Fma(vmulq_f32(Set(0.044715f), x), x, Set(1.0f)));
  return vdivq_f32(x, vaddq_f32(Set(1.0f), Exp(vnegq_f32(u2))));
}

inline F GeluErf(F x) {
  const F z = vmulq_f32(Abs(x), Set(0.70710678119f));
  const F t = vdivq_f32(Set(1.0f), Fma(z, Set(0.35f), Set(1.0f)));
  F q = Fma(Set(0.03615004f), t, Set(-0.14687018f));
  q = Fma(q, t, Set(0.15355796f));
  q = Fma(q, t, Set(0.00881435f));
  q = Fma(q, t, Set(0.05730401f));
  q = Fma(q, t, Set(0.16158799f));
  q = Fma(q, t, Set(0.14597048f));
  q = Fma(q, t, Set(0.1889819f));
  q = Fma(q, t, Set(0.19701354f));
  q = Fma(q, t, Set(0.19748991f));
  const F e = Exp(vmulq_f32(vnegq_f32(z), z));
  const F half = vmulq_f32(vmulq_f32(vmulq_f32(Set(0.5f), q), t), e);  // erfc(|x| / sqrt 2) / 2
  return vmulq_f32(x, WhereLess(x, Set(0), half, vsubq_f32(Set(1.0f), half)));
}

}  // namespace
}  // namespace slm::kernels
