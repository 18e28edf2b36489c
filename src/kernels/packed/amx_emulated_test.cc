// The wide products of tier amx over tiles in C++, for matmul_tiles_test.cc on CPUs without AMX, and what the tile configuration
// looks like to an assembly statement. Compiled with the flags that cmake/isa_flags.cmake gives this name; no test stands here,
// because test code must run on every CPU.
#include "kernels/packed/matmul_tiles.h"

namespace slm::kernels {

void MatMulQ4AmxEmulated(const MatMulArgs& args) { MatMulTiles<NibbleTiles<false>, EmulatedTiles>(args); }
void MatMulQ4MinAmxEmulated(const MatMulArgs& args) { MatMulTiles<NibbleTiles<true>, EmulatedTiles>(args); }
void MatMulQ8AmxEmulated(const MatMulArgs& args) { MatMulTiles<ByteTiles<false>, EmulatedTiles>(args); }
void MatMulQ8MinAmxEmulated(const MatMulArgs& args) { MatMulTiles<ByteTiles<true>, EmulatedTiles>(args); }
void MatMulQ5AmxEmulated(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ5>, EmulatedTiles>(args); }
void MatMulQ5MinAmxEmulated(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ5Min>, EmulatedTiles>(args); }
void MatMulQ4KAmxEmulated(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ4K>, EmulatedTiles>(args); }
void MatMulQ5KAmxEmulated(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ5K>, EmulatedTiles>(args); }
void MatMulQ6KAmxEmulated(const MatMulArgs& args) { MatMulTiles<PlaneTiles<PackedKind::kQ6K>, EmulatedTiles>(args); }

// The 64 bytes that LDTILECFG would read in the constructor of AmxTiles: the same statement with a load in its place.
void TileConfigSeenByAssembly(uint8_t (&bytes)[64]) {
  const TileConfig config = FullTiles();
  SLM_WITH_TILE_CONFIG("vmovdqu64 %0, %%zmm31", config);
  asm volatile("vmovdqu64 %%zmm31, %0" : "=m"(bytes));
}

}  // namespace slm::kernels
