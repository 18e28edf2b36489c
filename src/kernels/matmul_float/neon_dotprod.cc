// Float matmul for NEON: tiles of 1 to 3 tokens x 32 rows, weights widened to f32 once per tile and K.
//
// Every accumulator takes its K in order with one fused multiply-add each, so results equal ref.cc bit for bit. A register holds
// four K of a token, multiplied by lane. Eight chains, those of one token, cover the latency of the FMA.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/matmul_float/contract.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 3;     // 24 accumulators + 3 activations + weights of 32 registers
constexpr int kVectors = 8;  // of 4 rows
constexpr int kSteps = 4;    // K in a register of activations

// Rows 4 g to 4 g + 3 of the line at p, as f32.
template <PackedKind kKind>
float32x4_t Weights(const uint8_t* p, int g) {
  if constexpr (kKind == PackedKind::kF32) {
    return vld1q_f32(reinterpret_cast<const float*>(p) + g * 4);
  } else {
    const uint16x4_t h = vld1_u16(reinterpret_cast<const uint16_t*>(p) + g * 4);
    if constexpr (kKind == PackedKind::kF16) return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
  }
}

template <int kM>
void Store(const MatMulArgs& args, int64_t row, int64_t token, const float32x4_t (&acc)[kM][kVectors]) {
  for (int i = 0; i < kM; ++i) {
    float* out = args.out + (token + i) * args.out_stride + row;
    for (int g = 0; g < kVectors; ++g) {
      float32x4_t v = acc[i][g];
      if (args.bias != nullptr) v = vaddq_f32(v, vld1q_f32(args.bias + row + g * 4));
      if (args.accumulate) v = vaddq_f32(vld1q_f32(out + g * 4), v);
      vst1q_f32(out + g * 4, v);
    }
  }
}

// One K: the line at p times lane kLane of x.
template <PackedKind kKind, int kM, int kLane>
[[gnu::always_inline]] inline void AddLine(const uint8_t* p, const float32x4_t (&x)[kM], float32x4_t (&acc)[kM][kVectors]) {
#pragma GCC unroll 8
  for (int g = 0; g < kVectors; ++g) {
    const float32x4_t w = Weights<kKind>(p, g);
#pragma GCC unroll 3
    for (int i = 0; i < kM; ++i) acc[i][g] = vfmaq_laneq_f32(acc[i][g], w, x[i], kLane);
  }
}

template <PackedKind kKind, int kM>
void RunTile(const MatMulArgs& args, int64_t panel, int64_t token) {
  constexpr int kLineBytes = kKind == PackedKind::kF32 ? 2 * kLine : kLine;
  const uint8_t* p = args.w + panel * args.panel_bytes;
  const float* first = args.x + token * args.x_stride;
  float32x4_t acc[kM][kVectors];
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < kVectors; ++g) acc[i][g] = vdupq_n_f32(0);
  for (int64_t k = 0; k < args.k; k += kSteps, p += kSteps * kLineBytes) {
    float32x4_t x[kM];
#pragma GCC unroll 3
    for (int i = 0; i < kM; ++i) x[i] = vld1q_f32(first + i * args.x_stride + k);
    AddLine<kKind, kM, 0>(p, x, acc);
    AddLine<kKind, kM, 1>(p + kLineBytes, x, acc);
    AddLine<kKind, kM, 2>(p + 2 * kLineBytes, x, acc);
    AddLine<kKind, kM, 3>(p + 3 * kLineBytes, x, acc);
  }
  Store<kM>(args, panel * kPanelRows, token, acc);
}

template <PackedKind kKind>
void MatMul(const MatMulArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p)
    for (int done = 0; done < args.m;) {
      const int tile = TileTokens(args.m - done, kTile);
      switch (tile) {
        case 1: RunTile<kKind, 1>(args, p, done); break;
        case 2: RunTile<kKind, 2>(args, p, done); break;
        default: RunTile<kKind, 3>(args, p, done); break;
      }
      done += tile;
    }
}

}  // namespace

void MatMulF16NeonDot(const MatMulArgs& args) { MatMul<PackedKind::kF16>(args); }
void MatMulBF16NeonDot(const MatMulArgs& args) { MatMul<PackedKind::kBF16>(args); }
void MatMulF32NeonDot(const MatMulArgs& args) { MatMul<PackedKind::kF32>(args); }

}  // namespace slm::kernels
