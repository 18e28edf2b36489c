// f32 activations to int8 in blocks of 32: the left operand of every quantized matmul, alone or fused with what makes it.
//
// Per block: scale = max|x| / 127, q = round-half-even(x * (127 / max|x|)), sum = sum of the 32 q; |q| <= 127 always.
// A block whose max|x| is below kTinyBlock counts as zero (127 / max would overflow): scale 0, q 0.
// A block with an outlier (peak 127, small squares: sum of its q^2 < kPeakedSquares) is quantized a second time: its residual
// x - scale * q, exact to one rounding, as int8 with scale / 254 (half a step is 127 of them), so that x ~ 16 bits there.
// Rows are padded with zeros to PaddedK(n). NaN or Inf in x gives scale NaN (q 0), so that it cannot hide.
#pragma once
#include <stdint.h>

#include "kernels/packed/tiles.h"

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

inline constexpr float kTinyBlock = 1e-30f;

// The crest factor max|x| / rms above which a block gets a residual. Measured (docs/packed_layout.md): 4 is where the perplexity of
// a 135M model comes within 0.06 % of f32 activations, for a tenth of prefill; each 0.5 changes the error by 1.6 times.
inline constexpr double kCrest = 4.0;
// The same on the codes, hence exact and equal on all tiers: max|q| is 127, so the crest factor is above when sum q^2 < this.
inline constexpr double kPeakedLimit = kBlockK * 127 * 127 / (kCrest * kCrest);
inline constexpr int32_t kPeakedSquares = static_cast<int32_t>(kPeakedLimit) + (static_cast<int32_t>(kPeakedLimit) < kPeakedLimit ? 1 : 0);

struct Q8Row {              // one token's activations
  int8_t* q;                // [PaddedK(n)]
  float* scale;             // [PaddedK(n) / 32]
  int32_t* sum;             // [PaddedK(n) / 32]
  ResidualBlock* residual;  // [PaddedK(n) / 32], of which the first *residual_count are written
  int32_t* residual_count;
};

struct QuantizeKernels {
  // x [n] f32 -> row
  void (*quantize)(const float* x, int n, Q8Row row);
  // RMSNorm then quantize: y = x * rsqrt(mean(x^2) + eps) * w; `y` [n] may be null or receives the f32 values too (may be x).
  // The f32 values are those of kernels/norm, bit for bit on every tier.
  void (*rms_norm_quantize)(const float* x, const float* w, float eps, int n, float* y, Q8Row row);
  // Gated activation then quantize: y = act(gate) * up. act: 0 SiLU, 1 GELU (tanh form), 2 GELU (erf form).
  // The f32 values are those of the same tier of kernels/activation; tiers differ in the last bits of exp.
  void (*gate_quantize)(const float* gate, const float* up, int act, int n, Q8Row row);
  const char* name;
};

// Kernels of the best tier <= isa. All tiers give the same int8 and residuals for the same f32 input of `quantize`. Pure.
QuantizeKernels Quantize(Isa isa);

// f32 activations to bf16 tiles (kernels/packed/tiles.h): the left operand of the wide products of tiers that have them.
struct TileKernels {
  // x [n] f32 -> row `token` of `tiles` at width PaddedK(n), zeros past n. Rounds to nearest, ties to even; NaN stays NaN.
  void (*store_row)(const float* x, int n, int64_t token, uint16_t* tiles) = nullptr;
  const char* name = nullptr;
};
// {nullptr, nullptr} below tier amx. Pure.
TileKernels ActivationTiles(Isa isa);

}  // namespace slm::kernels
