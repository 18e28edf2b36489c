// Scalar law of the float matmul: acc = fma(x[k], w[k], acc) in K order for every row and token.
#include <bit>
#include <cmath>

#include "base/float16.h"
#include "kernels/matmul_float/contract.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

float Weight(PackedKind kind, const uint8_t* p) {
  if (kind == PackedKind::kF32) {
    const uint32_t bits = uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
    return std::bit_cast<float>(bits);
  }
  const uint16_t bits = static_cast<uint16_t>(p[0] | p[1] << 8);
  return kind == PackedKind::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

void MatMul(const MatMulArgs& args, PackedKind kind) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p)
    for (int i = 0; i < args.m; ++i)
      for (int r = 0; r < kPanelRows; ++r) {
        const uint8_t* panel = args.w + p * args.panel_bytes;
        const float* x = args.x + i * args.x_stride;
        const int64_t row = p * kPanelRows + r;
        float acc = 0;
        for (int64_t k = 0; k < args.k; ++k) acc = std::fma(x[k], Weight(kind, panel + ElementOffset(kind, r, k)), acc);
        if (args.bias != nullptr) acc += args.bias[row];
        float* out = args.out + i * args.out_stride + row;
        *out = args.accumulate ? *out + acc : acc;
      }
}

}  // namespace

void MatMulF16Scalar(const MatMulArgs& args) { MatMul(args, PackedKind::kF16); }
void MatMulBF16Scalar(const MatMulArgs& args) { MatMul(args, PackedKind::kBF16); }
void MatMulF32Scalar(const MatMulArgs& args) { MatMul(args, PackedKind::kF32); }

}  // namespace slm::kernels
