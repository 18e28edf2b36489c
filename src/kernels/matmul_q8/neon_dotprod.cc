// 8-bit matmul for Arm with SDOT; the tile is in packed/tile_dotprod.h.
#include "kernels/matmul_q8/contract.h"
#include "kernels/matmul_q8/format_neon.h"
#include "kernels/packed/tile_dotprod.h"

namespace slm::kernels {

void MatMulQ8NeonDot(const MatMulArgs& args) { MatMul<Q8Format<false>, DotTile<Q8Format<false>>>(args); }
void MatMulQ8MinNeonDot(const MatMulArgs& args) { MatMul<Q8Format<true>, DotTile<Q8Format<true>>>(args); }

}  // namespace slm::kernels
