// Scalar law of the rotary embedding: a rotation of each pair of values by the angle of its frequency.
#include "kernels/rope/contract.h"

namespace slm::kernels {
namespace {

void Rotate(const RopeArgs& a) {
  const int half = a.rotary_dim / 2;
  const int step = a.interleaved ? 2 : 1, partner = a.interleaved ? 1 : half;
  for (int h = 0; h < a.n_heads; ++h) {
    float* x = a.x + int64_t{h} * a.head_dim;
    for (int i = 0; i < half; ++i) {
      float* p = x + i * step;
      const float u = p[0], v = p[partner];
      p[0] = u * a.cos[i] - v * a.sin[i];
      p[partner] = v * a.cos[i] + u * a.sin[i];
    }
  }
}

}  // namespace

extern const RopeKernels kRopeRef;
const RopeKernels kRopeRef = {Rotate, "rope_scalar"};

}  // namespace slm::kernels
