// The scalar 4-bit matmuls: kernels/packed/scalar.h.
#include "kernels/packed/scalar.h"

namespace slm::kernels {

void MatMulQ4Scalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ4>(args); }
void MatMulQ4MinScalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ4Min>(args); }

}  // namespace slm::kernels
