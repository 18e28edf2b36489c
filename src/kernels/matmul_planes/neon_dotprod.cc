// Matmul of codes in planes for Arm with SDOT; the tile is in packed/tile_dotprod.h.
#include "kernels/matmul_planes/contract.h"
#include "kernels/matmul_planes/format_neon.h"
#include "kernels/packed/tile_dotprod.h"

namespace slm::kernels {
namespace {

template <PackedKind kKind>
void Run(const MatMulArgs& args) {
  MatMul<PlanesFormat<kKind>, DotTile<PlanesFormat<kKind>>>(args);
}

}  // namespace

void MatMulQ5NeonDot(const MatMulArgs& args) { Run<PackedKind::kQ5>(args); }
void MatMulQ5MinNeonDot(const MatMulArgs& args) { Run<PackedKind::kQ5Min>(args); }
void MatMulQ4KNeonDot(const MatMulArgs& args) { Run<PackedKind::kQ4K>(args); }
void MatMulQ5KNeonDot(const MatMulArgs& args) { Run<PackedKind::kQ5K>(args); }
void MatMulQ6KNeonDot(const MatMulArgs& args) { Run<PackedKind::kQ6K>(args); }

}  // namespace slm::kernels
