// 8-bit matmul for Arm with SMMLA, from two tokens on; the tile is in packed/tile_i8mm.h.
#include "kernels/matmul_q8/contract.h"
#include "kernels/matmul_q8/format_neon.h"
#include "kernels/packed/tile_i8mm.h"

namespace slm::kernels {

void MatMulQ8NeonDot(const MatMulArgs& args);
void MatMulQ8MinNeonDot(const MatMulArgs& args);

void MatMulQ8NeonI8mm(const MatMulArgs& args) {
  if (args.m == 1) return MatMulQ8NeonDot(args);
  MatMul<Q8Format<false>, PairTiles<Q8Format<false>>>(args);
}
void MatMulQ8MinNeonI8mm(const MatMulArgs& args) {
  if (args.m == 1) return MatMulQ8MinNeonDot(args);
  MatMul<Q8Format<true>, PairTiles<Q8Format<true>>>(args);
}

}  // namespace slm::kernels
