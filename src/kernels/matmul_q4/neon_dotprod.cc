// 4-bit matmul for Arm with SDOT; the tile is in packed/tile_dotprod.h.
#include "kernels/matmul_q4/contract.h"
#include "kernels/matmul_q4/format_neon.h"
#include "kernels/packed/tile_dotprod.h"

namespace slm::kernels {

void MatMulQ4NeonDot(const MatMulArgs& args) { MatMul<Q4Format<false>, DotTile<Q4Format<false>>>(args); }
void MatMulQ4MinNeonDot(const MatMulArgs& args) { MatMul<Q4Format<true>, DotTile<Q4Format<true>>>(args); }

}  // namespace slm::kernels
