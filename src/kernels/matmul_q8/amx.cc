// 8-bit weights times many tokens on AMX: the wide product of kernels/packed/matmul_tiles.h.
#include "kernels/packed/matmul_tiles.h"

namespace slm::kernels {

#if defined(SLM_AMX_EMULATED)
using Tiles = EmulatedTiles;
#else
using Tiles = AmxTiles;
#endif

void MatMulQ8Amx(const MatMulArgs& args) { MatMulTiles<ByteTiles<false>, Tiles>(args); }
void MatMulQ8MinAmx(const MatMulArgs& args) { MatMulTiles<ByteTiles<true>, Tiles>(args); }

}  // namespace slm::kernels
