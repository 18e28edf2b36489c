// The scalar matmuls of codes in planes: kernels/packed/scalar.h.
#include "kernels/packed/scalar.h"

namespace slm::kernels {

void MatMulQ5Scalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ5>(args); }
void MatMulQ5MinScalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ5Min>(args); }
void MatMulQ4KScalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ4K>(args); }
void MatMulQ5KScalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ5K>(args); }
void MatMulQ6KScalar(const MatMulArgs& args) { MatMulScalar<PackedKind::kQ6K>(args); }

}  // namespace slm::kernels
