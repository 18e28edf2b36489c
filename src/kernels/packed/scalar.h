// Scalar law of the quantized matmuls: the order of operations that every ISA repeats bit for bit (kernels/packed/contract.h).
// Included by the families' ref.cc only, which are compiled without contraction.
#pragma once
#include <cmath>

#include "kernels/packed/value.h"

namespace slm::kernels {

// 32 activations: the terms that a block adds to the sum, whether first plane or residual.
struct ScalarBlock {
  const int8_t* q;
  float scale;
  int32_t sum;
};

inline float AddScalar(const ScalarBlock& a, PackedKind kind, const uint8_t* panel, int r, int64_t b, float acc) {
  const int n = kBlockK / ScalesOf(kind);
  for (int half = 0; half < ScalesOf(kind); ++half) {
    int32_t dot = 0;
    for (int k = half * n; k < (half + 1) * n; ++k) dot += CodeAt(kind, panel, r, b * kBlockK + k) * a.q[k];
    acc = std::fma(static_cast<float>(dot), a.scale * ScaleAt(kind, panel, r, b, half), acc);
  }
  return HasMin(kind) ? std::fma(MinAt(kind, panel, r, b), a.scale * static_cast<float>(a.sum), acc) : acc;
}

inline float DotScalar(const MatMulArgs& args, PackedKind kind, const uint8_t* panel, int r, int token) {
  const int64_t n_blocks = args.k / kBlockK, row = token * n_blocks;
  float acc = 0;
  for (int64_t b = 0; b < n_blocks; ++b)
    acc = AddScalar({args.a + (row + b) * kBlockK, args.a_scale[row + b], args.a_sum[row + b]}, kind, panel, r, b, acc);
  const int32_t n_residuals = args.residual_count != nullptr ? args.residual_count[token] : 0;
  float rest = 0;
  for (int32_t i = 0; i < n_residuals; ++i) {
    const ResidualBlock& e = args.residual[row + i];
    rest = AddScalar({e.q, e.scale, e.sum}, kind, panel, r, e.block, rest);
  }
  return acc + rest;
}

template <PackedKind kKind>
void MatMulScalar(const MatMulArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p)
    for (int i = 0; i < args.m; ++i)
      for (int r = 0; r < kPanelRows; ++r) {
        const int64_t row = p * kPanelRows + r;
        float v = DotScalar(args, kKind, args.w + p * args.panel_bytes, r, i);
        if (args.bias != nullptr) v += args.bias[row];
        float* out = args.out + i * args.out_stride + row;
        *out = args.accumulate ? *out + v : v;
      }
}

}  // namespace slm::kernels
