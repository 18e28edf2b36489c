// RMSNorm (arXiv 1910.07467): y = x * rsqrt(mean(x^2) + eps) * w, over rows of n f32 values.
// All tiers give the same bits: the squares are added in 32 interleaved partial sums and a halving tree (squares_ref.h).
#pragma once
#include <stdint.h>

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

struct NormKernels {
  // x, w, y: [n]; y may be x.
  void (*rms_norm)(const float* x, const float* w, float eps, int n, float* y);
  // x += d, then y = rms_norm(x): the residual add and the next norm in one pass. y may not be x.
  void (*add_rms_norm)(float* x, const float* d, const float* w, float eps, int n, float* y);
  const char* name;
};
NormKernels Norm(Isa isa);  // best tier <= isa; pure

}  // namespace slm::kernels
