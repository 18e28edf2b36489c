// 4-bit lines as the Arm tiles take them: the nibbles 0..15 as they are (legal signed bytes), the zero point paid in advance.
//
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include "kernels/packed/panel_neon.h"

namespace slm::kernels {
namespace {

template <bool kHasMin>
struct Q4Format {
  static constexpr bool kMin = kHasMin;
  static constexpr int kZeroPoint = kHasMin ? 0 : 8;
  static constexpr int kParts = 1;
  static constexpr int64_t kCodeBytes = 8 * kLine, kBlockBytes = kCodeBytes + (kHasMin ? 2 : 1) * kLine;
  static Groups Load(const uint8_t* panel, int64_t b, int c, int v) {
    const uint8x16_t w = vld1q_u8(panel + b * kBlockBytes + c * 2 * kLine + v * 16);
    return {vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(w, 4))};
  }
  static float32x4_t Scale(const uint8_t* panel, int64_t b, int, int v) { return Halfs(panel + b * kBlockBytes + kCodeBytes + v * 8); }
  static float32x4_t Min(const uint8_t* panel, int64_t b, int v) { return Halfs(panel + b * kBlockBytes + kCodeBytes + kLine + v * 8); }
};

}  // namespace
}  // namespace slm::kernels
