// Rotary embedding in NEON: both pairings; what is left over runs in scalar code. Loads of pairs come apart into their halves.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/rope/contract.h"

namespace slm::kernels {
namespace {

constexpr int kWidth = 4;

struct Pairs {
  float32x4_t u, v;
};
inline Pairs Rotated(float32x4_t u, float32x4_t v, const float* cos, const float* sin) {
  const float32x4_t c = vld1q_f32(cos), s = vld1q_f32(sin);
  return {vfmaq_f32(vmulq_f32(v, vnegq_f32(s)), u, c), vfmaq_f32(vmulq_f32(u, s), v, c)};
}

void RotateOne(float* p, int partner, float c, float s) {
  const float u = p[0], v = p[partner];
  p[0] = u * c - v * s;
  p[partner] = v * c + u * s;
}

void RotateHalves(float* x, int half, const float* cos, const float* sin) {
  int i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    const Pairs r = Rotated(vld1q_f32(x + i), vld1q_f32(x + half + i), cos + i, sin + i);
    vst1q_f32(x + i, r.u);
    vst1q_f32(x + half + i, r.v);
  }
  for (; i < half; ++i) RotateOne(x + i, half, cos[i], sin[i]);
}

void RotateNeighbours(float* x, int half, const float* cos, const float* sin) {
  int i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    const float32x4x2_t p = vld2q_f32(x + 2 * i);
    const Pairs r = Rotated(p.val[0], p.val[1], cos + i, sin + i);
    vst2q_f32(x + 2 * i, {{r.u, r.v}});
  }
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

extern const RopeKernels kRopeNeonDot;
const RopeKernels kRopeNeonDot = {Rotate, "rope_neon_dotprod"};

}  // namespace slm::kernels
