// Matmul of codes in planes for Arm with SMMLA, from two tokens on; the tile is in packed/tile_i8mm.h.
#include "kernels/matmul_planes/contract.h"
#include "kernels/matmul_planes/format_neon.h"
#include "kernels/packed/tile_i8mm.h"

namespace slm::kernels {
void MatMulQ5NeonDot(const MatMulArgs& args);
void MatMulQ5MinNeonDot(const MatMulArgs& args);
void MatMulQ4KNeonDot(const MatMulArgs& args);
void MatMulQ5KNeonDot(const MatMulArgs& args);
void MatMulQ6KNeonDot(const MatMulArgs& args);
namespace {

template <PackedKind kKind, MatMulFn kOne>
void Run(const MatMulArgs& args) {
  if (args.m == 1) return kOne(args);
  MatMul<PlanesFormat<kKind>, PairTiles<PlanesFormat<kKind>>>(args);
}

}  // namespace

void MatMulQ5NeonI8mm(const MatMulArgs& args) { Run<PackedKind::kQ5, MatMulQ5NeonDot>(args); }
void MatMulQ5MinNeonI8mm(const MatMulArgs& args) { Run<PackedKind::kQ5Min, MatMulQ5MinNeonDot>(args); }
void MatMulQ4KNeonI8mm(const MatMulArgs& args) { Run<PackedKind::kQ4K, MatMulQ4KNeonDot>(args); }
void MatMulQ5KNeonI8mm(const MatMulArgs& args) { Run<PackedKind::kQ5K, MatMulQ5KNeonDot>(args); }
void MatMulQ6KNeonI8mm(const MatMulArgs& args) { Run<PackedKind::kQ6K, MatMulQ6KNeonDot>(args); }

}  // namespace slm::kernels
