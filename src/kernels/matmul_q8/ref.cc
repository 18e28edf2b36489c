// The scalar 8-bit matmuls: kernels/packed/scalar.h.
#include "kernels/packed/scalar.h"

namespace slm::kernels {

void MatMulQ8Scalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ8>(args); }
void MatMulQ8MinScalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ8Min>(args); }

}  // namespace slm::kernels
