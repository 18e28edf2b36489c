// What the quantized matmuls of the Arm tiers share: tokens of a tile, residual blocks, output, the walk over panels.
//
// A family brings a Format (matmul_q4/format_neon.h): kMin; kParts (2: each half of a block has its own scale); kZeroPoint (of the
// codes as Load returns them; paid in advance by starting every dot at -kZeroPoint * sum(a)); and of block b of a panel, for rows
// 4 v to 4 v + 3: Load(panel, b, c, v), the K groups 2 c and 2 c + 1, Scale(panel, b, part, v) and Min(panel, b, v). A tier brings
// the tile. No prefetch: the distances of prefetch.h were measured on x86, none was on an Arm core.
// Included by ISA files only; everything has internal linkage, so an ISA object offers nothing to others.
#pragma once
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/packed/contract.h"
#include "kernels/packed/residual.h"
#include "kernels/packed/tokens.h"

namespace slm::kernels {
namespace {

constexpr int kVectors = kPanelRows / 4;  // of 4 rows in a panel

// Signed codes of 4 rows in two neighbouring K groups: byte 4 r + j = row r, K j, an operand of SDOT.
struct Groups {
  int8x16_t even, odd;
};

inline Tokens From(const Tokens& t, int64_t i) {
  return {t.a + i * t.k, t.scale + i * t.n_blocks, t.start + i * t.n_blocks, t.offset + i * t.n_blocks, t.k, t.n_blocks};
}
template <class Format>
int32_t StartOf(const Tokens& t, int64_t i, int64_t b) {
  return Format::kZeroPoint != 0 ? t.start[i * t.n_blocks + b] : 0;
}

inline float32x4_t Halfs(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p)))); }

// One dot of rows 4 v to 4 v + 3 added to `sum` in the order of the contract.
template <class Format>
inline float32x4_t Folded(float32x4_t sum, int32x4_t dot, float x, float offset, float32x4_t scale, float32x4_t lowest) {
  sum = vfmaq_f32(sum, vcvtq_f32_s32(dot), vmulq_n_f32(scale, x));
  return Format::kMin ? vfmaq_n_f32(sum, lowest, offset) : sum;
}

template <class Format>
inline float32x4_t Minima(const uint8_t* panel, int64_t b, int v) {
  if constexpr (Format::kMin) return Format::Min(panel, b, v);
  else return vdupq_n_f32(0);
}

// Adds a tile's products to the sums of its kM tokens.
template <int kM>
inline void AddTo(float* sums, const float32x4_t (&acc)[kM][kVectors]) {
  for (int i = 0; i < kM; ++i)
    for (int v = 0; v < kVectors; ++v) {
      float* sum = sums + i * kPanelRows + v * 4;
      vst1q_f32(sum, vaddq_f32(acc[i][v], vld1q_f32(sum)));
    }
}

// Sets the sums of n tokens in one panel (and of one more when n is odd: tiles may take tokens in pairs) to what their residual
// blocks give, 4 rows at a time.
template <class Format>
[[gnu::noinline]] void SumResiduals(const uint8_t* panel, const ResidualList& list, int64_t n_blocks, int n, float* sums) {
  static_assert(kTokenBlock % 2 == 0);
  for (int i = 0; i < (n + 1) / 2 * 2 * kPanelRows; i += 4) vst1q_f32(sums + i, vdupq_n_f32(0));
  for (int64_t b = 0; b < n_blocks; ++b) {
    const ResidualEntry *first = list.entries + list.begin[b], *end = list.entries + list.begin[b + 1];
    if (first == end) continue;
    for (int v = 0; v < kVectors; ++v) {
      Groups w[4];
      float32x4_t scale[Format::kParts];
      for (int c = 0; c < 4; ++c) w[c] = Format::Load(panel, b, c, v);
      for (int part = 0; part < Format::kParts; ++part) scale[part] = Format::Scale(panel, b, part, v);
      const float32x4_t lowest = Minima<Format>(panel, b, v);
      for (const ResidualEntry* e = first; e != end; ++e) {
        const int8x16_t x0 = vld1q_s8(e->q), x1 = vld1q_s8(e->q + 16);
        int32x4_t half0 = vdotq_laneq_s32(vdupq_n_s32(e->start), w[0].even, x0, 0),
                  half1 = vdotq_laneq_s32(vdupq_n_s32(0), w[2].even, x1, 0);
        half0 = vdotq_laneq_s32(half0, w[0].odd, x0, 1);
        half1 = vdotq_laneq_s32(half1, w[2].odd, x1, 1);
        half0 = vdotq_laneq_s32(half0, w[1].even, x0, 2);
        half1 = vdotq_laneq_s32(half1, w[3].even, x1, 2);
        half0 = vdotq_laneq_s32(half0, w[1].odd, x0, 3);
        half1 = vdotq_laneq_s32(half1, w[3].odd, x1, 3);
        float* to = sums + e->token * kPanelRows + v * 4;
        float32x4_t sum = vld1q_f32(to);
        if constexpr (Format::kParts == 2) {
          sum = Folded<Format>(sum, half0, e->scale, 0, scale[0], lowest);
          sum = Folded<Format>(sum, half1, e->scale, 0, scale[1], lowest);
        } else {
          sum = Folded<Format>(sum, vaddq_s32(half0, half1), e->scale, e->offset, scale[0], lowest);
        }
        vst1q_f32(to, sum);
      }
    }
  }
}

// Sums of n tokens, 32 rows each, into the output.
inline void Store(const MatMulArgs& args, int64_t row, int64_t token, int n, const float* sums) {
  for (int i = 0; i < n; ++i) {
    float* out = args.out + (token + i) * args.out_stride + row;
    for (int g = 0; g < kPanelRows; g += 4) {
      float32x4_t v = vld1q_f32(sums + i * kPanelRows + g);
      if (args.bias != nullptr) v = vaddq_f32(v, vld1q_f32(args.bias + row + g));
      if (args.accumulate) v = vaddq_f32(vld1q_f32(out + g), v);
      vst1q_f32(out + g, v);
    }
  }
}

// Per token and block, once for all panels: what the tile would otherwise recompute per panel.
template <class Format>
inline void Prepare(const float* scale, const int32_t* sum, int64_t n, uint8_t* scratch) {
  static_assert(!Format::kMin || Format::kZeroPoint == 0, "one value a block has room");
  static_assert(Format::kParts == 1 || (!Format::kMin && Format::kZeroPoint == 0), "what is prepared is of whole blocks");
  for (int64_t i = 0; i < n; ++i) {
    if (Format::kMin) reinterpret_cast<float*>(scratch)[i] = scale[i] * static_cast<float>(sum[i]);
    else if (Format::kZeroPoint != 0) reinterpret_cast<int32_t*>(scratch)[i] = -Format::kZeroPoint * sum[i];
  }
}

// Tokens are taken kTokenBlock at a time, so that their activations stay in L2 while the panels stream by. Tile::Run(panel, n, t,
// sums) adds the products of n tokens to their sums.
template <class Format, class Tile>
void MatMul(const MatMulArgs& args) {
  alignas(kLine) float sums[kTokenBlock * kPanelRows];
  const int64_t n_blocks = args.k / kBlockK;
  for (int64_t first = 0; first < args.m; first += kTokenBlock) {
    const int n = static_cast<int>(args.m - first < kTokenBlock ? args.m - first : kTokenBlock);
    Prepare<Format>(args.a_scale + first * n_blocks, args.a_sum + first * n_blocks, n * n_blocks, args.scratch);
    const Tokens t{args.a + first * args.k,
                   args.a_scale + first * n_blocks,
                   reinterpret_cast<const int32_t*>(args.scratch),
                   reinterpret_cast<const float*>(args.scratch),
                   args.k,
                   n_blocks};
    const ResidualList residuals = ListResiduals(args, Format::kZeroPoint, first, n, args.scratch + ListOffset(n_blocks));
    for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
      const uint8_t* panel = args.w + p * args.panel_bytes;
      SumResiduals<Format>(panel, residuals, n_blocks, n, sums);
      Tile::Run(panel, n, t, sums);
      Store(args, p * kPanelRows, first, n, sums);
    }
  }
}

}  // namespace
}  // namespace slm::kernels
