// 1 / RMS of a row in NEON, in the order of squares_ref.h; shared by the norms and by those that quantize what they compute.
//
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <arm_neon.h>
#include <stdint.h>

namespace slm::kernels {
namespace {

struct SumOfSquares {
  float32x4_t s[8] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0),
                      vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  // v: values j * 4 to j * 4 + 3 of a block of 32; past the row they are zero or not added.
  void Add(int j, float32x4_t v) { s[j] = vfmaq_f32(s[j], v, v); }
  float InverseRms(float eps, int n) const {
    const float32x4_t s16[4] = {vaddq_f32(s[0], s[4]), vaddq_f32(s[1], s[5]), vaddq_f32(s[2], s[6]), vaddq_f32(s[3], s[7])};
    const float32x4_t s4 = vaddq_f32(vaddq_f32(s16[0], s16[2]), vaddq_f32(s16[1], s16[3]));
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    const float sum = vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
    return 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
  }
};

}  // namespace
}  // namespace slm::kernels
