// 4-bit matmul for Arm with SMMLA, from two tokens on; the tile is in packed/tile_i8mm.h.
#include "kernels/matmul_q4/contract.h"
#include "kernels/matmul_q4/format_neon.h"
#include "kernels/packed/tile_i8mm.h"

namespace slm::kernels {

void MatMulQ4NeonDot(const MatMulArgs& args);
void MatMulQ4MinNeonDot(const MatMulArgs& args);

void MatMulQ4NeonI8mm(const MatMulArgs& args) {
  if (args.m == 1) return MatMulQ4NeonDot(args);
  MatMul<Q4Format<false>, PairTiles<Q4Format<false>>>(args);
}
void MatMulQ4MinNeonI8mm(const MatMulArgs& args) {
  if (args.m == 1) return MatMulQ4MinNeonDot(args);
  MatMul<Q4Format<true>, PairTiles<Q4Format<true>>>(args);
}

}  // namespace slm::kernels
