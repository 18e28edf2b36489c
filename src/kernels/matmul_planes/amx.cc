// Codes in planes times many tokens on AMX: the wide product of kernels/packed/matmul_tiles.h.
#include "kernels/packed/matmul_tiles.h"

namespace slm::kernels {

#if defined(SLM_AMX_EMULATED)
using Tiles = EmulatedTiles;
#else
using Tiles = AmxTiles;
#endif

void MatMulQ5Amx(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ5>, Tiles>(args); }
void MatMulQ5MinAmx(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ5Min>, Tiles>(args); }
void MatMulQ4KAmx(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ4K>, Tiles>(args); }
void MatMulQ5KAmx(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ5K>, Tiles>(args); }
void MatMulQ6KAmx(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ6K>, Tiles>(args); }

}  // namespace slm::kernels
