// 4-bit weights times many tokens on AMX: the wide product of kernels/packed/matmul_tiles.h.
#include "kernels/packed/matmul_tiles.h"

namespace slm::kernels {

#if defined(SLM_AMX_EMULATED)
using Tiles = EmulatedTiles;
#else
using Tiles = AmxTiles;
#endif

void MatMulQ4Amx(const MatMulArgs& args) { MatMulTiles<NibbleTiles<false>, Tiles>(args); }
void MatMulQ4MinAmx(const MatMulArgs& args) { MatMulTiles<NibbleTiles<true>, Tiles>(args); }

}  // namespace slm::kernels
