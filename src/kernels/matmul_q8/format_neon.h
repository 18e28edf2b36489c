// 8-bit lines as the Arm tiles take them: u - 128 is u with its top bit flipped, read as signed; no zero point is left.
//
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include "kernels/packed/panel_neon.h"

namespace slm::kernels {
namespace {

template <bool kHasMin>
struct Q8Format {
  static constexpr bool kMin = kHasMin;
  static constexpr int kZeroPoint = 0;
  static constexpr int kParts = 1;
  static constexpr int64_t kCodeBytes = 16 * kLine, kBlockBytes = kCodeBytes + (kHasMin ? 2 : 1) * kLine;
  static int8x16_t Signed(const uint8_t* p) { return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80))); }
  static Groups Load(const uint8_t* panel, int64_t b, int c, int v) {
    const uint8_t* even = panel + b * kBlockBytes + c * 4 * kLine + v * 16;
    return {Signed(even), Signed(even + 2 * kLine)};
  }
  static float32x4_t Scale(const uint8_t* panel, int64_t b, int, int v) { return Halfs(panel + b * kBlockBytes + kCodeBytes + v * 8); }
  static float32x4_t Min(const uint8_t* panel, int64_t b, int v) { return Halfs(panel + b * kBlockBytes + kCodeBytes + kLine + v * 8); }
};

}  // namespace
}  // namespace slm::kernels
