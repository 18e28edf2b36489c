// Codes in planes as the Arm tiles take them: put together as a line is loaded, the zero point subtracted, scales of super-blocks
// multiplied out (exact: at most 11 + 7 bits).
//
// Why not spread to bytes first, as on x86: SDOT wants signed codes of any width, so a tile of four tokens has eight dots to hide
// the unpacking of two K groups behind, and nothing is written. Included by ISA files only; everything has internal linkage.
#pragma once
#include "kernels/packed/panel_neon.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

template <PackedKind kKind>
struct PlanesFormat {
  static constexpr bool kMin = HasMin(kKind), kSuper = LinesOf(kKind).super > 0;
  static constexpr int kZeroPoint = 0;  // none is left
  static constexpr int kParts = kKind == PackedKind::kQ6K ? 2 : 1, kHigh = HighBits(kKind);

  // The bits above the nibble of K group c at bit 4 and up; other bits are noise.
  static uint8x16_t High(const uint8_t* planes, int c, int v) {
    const uint8x16_t line = vld1q_u8(planes + c * kHigh / 8 * 2 * kLine + v * 16);
    return vshlq_u8(line, vdupq_n_s8(static_cast<int8_t>(4 - c * kHigh % 8)));
  }
  static int8x16_t Code(uint8x16_t nibbles, const uint8_t* planes, int c, int v) {
    if constexpr (kHigh > 0) nibbles = vorrq_u8(nibbles, vandq_u8(High(planes, c, v), vdupq_n_u8(((1 << kHigh) - 1) << 4)));
    return vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(ZeroPoint(kKind)));
  }
  static Groups Load(const uint8_t* panel, int64_t b, int c, int v) {
    const uint8_t* block = panel + BlockOffset(kKind, b);
    const uint8_t* planes = block + CodeLines(kKind) * kLine;
    const uint8x16_t w = vld1q_u8(block + c * 2 * kLine + v * 16);
    return {Code(vandq_u8(w, vdupq_n_u8(15)), planes, c * 2, v), Code(vshrq_n_u8(w, 4), planes, c * 2 + 1, v)};
  }

  // Four integers of a byte as f32.
  static uint32x2_t Four(const uint8_t* p) {
    uint32_t four;
    __builtin_memcpy(&four, p, 4);
    return vdup_n_u32(four);
  }
  static float32x4_t Unsigned(const uint8_t* p) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(Four(p)))))); }
  static float32x4_t Signed(const uint8_t* p) { return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(Four(p)))))); }
  static float32x4_t Scale(const uint8_t* panel, int64_t b, int part, int v) {
    if constexpr (!kSuper) return Halfs(panel + ScaleOffset(kKind, 4 * v, b));
    else return vmulq_f32(Halfs(panel + FactorOffset(kKind, 4 * v, b)), Signed(panel + SubScaleOffset(kKind, 4 * v, b, part)));
  }
  static float32x4_t Min(const uint8_t* panel, int64_t b, int v) {
    if constexpr (!kSuper) return Halfs(panel + MinOffset(kKind, 4 * v, b));
    else return vmulq_f32(Halfs(panel + MinFactorOffset(kKind, 4 * v, b)), Unsigned(panel + SubMinOffset(kKind, 4 * v, b)));
  }
};

}  // namespace
}  // namespace slm::kernels
