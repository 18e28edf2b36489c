// The f64 update for 64-bit Arm: tiles of 4 rows x 8 columns, sixteen accumulators of the 32 registers.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/update_f64/contract.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 4, kVectors = 4;

template <int kM>
void RunTile(const UpdateF64Args& args, int row, int panel) {
  const double* a = args.a + row * args.a_stride;
  const double* b = args.b + int64_t{panel} * args.k * kUpdateColumns;
  float64x2_t acc[kM][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[i][v] = vdupq_n_f64(0);
  for (int k = 0; k < args.k; ++k, b += kUpdateColumns)
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[i][v] = vfmaq_n_f64(acc[i][v], vld1q_f64(b + 2 * v), a[i * args.a_stride + k]);
#pragma GCC unroll 4
  for (int i = 0; i < kM; ++i) {
    double* c = args.c + (row + i) * args.c_stride + panel * kUpdateColumns;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) vst1q_f64(c + 2 * v, vsubq_f64(vld1q_f64(c + 2 * v), acc[i][v]));
  }
}

void RunRows(const UpdateF64Args& args, int row, int n, int panel) {
  switch (n) {
    case 1: RunTile<1>(args, row, panel); break;
    case 2: RunTile<2>(args, row, panel); break;
    case 3: RunTile<3>(args, row, panel); break;
    default: RunTile<4>(args, row, panel); break;
  }
}

// A panel of B stays in the first cache for all rows.
void Update(const UpdateF64Args& args) {
  for (int p = 0; p < args.panels; ++p)
    for (int row = 0; row < args.m; row += kTile) RunRows(args, row, args.m - row < kTile ? args.m - row : kTile, p);
}

}  // namespace

extern const UpdateF64Kernel kUpdateF64NeonDot;
const UpdateF64Kernel kUpdateF64NeonDot = {Update, "update_f64_neon_dotprod"};

}  // namespace slm::kernels
