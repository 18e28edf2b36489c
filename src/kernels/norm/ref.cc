// Scalar law of the norm family.
#include "kernels/norm/contract.h"
#include "kernels/norm/squares_ref.h"

namespace slm::kernels {
namespace {

void RmsNorm(const float* x, const float* w, float eps, int n, float* y) {
  const float r = InverseRms(x, eps, n);
  for (int i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
}

void AddRmsNorm(float* x, const float* d, const float* w, float eps, int n, float* y) {
  for (int i = 0; i < n; ++i) x[i] += d[i];
  RmsNorm(x, w, eps, n, y);
}

}  // namespace

extern const NormKernels kNormRef;
const NormKernels kNormRef = {RmsNorm, AddRmsNorm, "norm_scalar"};

}  // namespace slm::kernels
