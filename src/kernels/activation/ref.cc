// Scalar law of the activation family, on the C library; the activations are in math_ref.h.
#include <cmath>

#include "kernels/activation/contract.h"
#include "kernels/activation/math_ref.h"

namespace slm::kernels {
namespace {

void Activate(const float* x, int act, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Act(x[i], act);
}
void Gate(const float* gate, const float* up, int act, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Act(gate[i], act) * up[i];
}
void Add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}
void Mul(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}
void Scale(const float* a, float s, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * s;
}
// x + (x - x) turns an infinity into NaN first: tanh would hide it as a plausible +-cap.
void Softcap(float* x, float cap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = cap * std::tanh((x[i] + (x[i] - x[i])) / cap);
}
int64_t Argmax(const float* x, int64_t n, float* value) {
  int64_t best = n > 0 ? 0 : -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return -1;
    if (x[i] > x[best]) best = i;
  }
  if (best >= 0) *value = x[best];
  return best;
}

}  // namespace

extern const ActivationKernels kActivationRef;
const ActivationKernels kActivationRef = {Activate, Gate, Add, Mul, Scale, Softcap, Argmax, "activation_scalar"};

}  // namespace slm::kernels
