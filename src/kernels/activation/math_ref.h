// The activations on one value, as the scalar law of the element-wise kernels and of gate_quantize, on the C library.
//
// GELU with tanh is written as x * sigmoid(2u), u = sqrt(2/pi)(x + 0.044715 x^3): the same function (Hendrycks & Gimpel,
// arXiv 1606.08415) without the cancellation of 1 + tanh(u) on the negative side. GELU with erf uses erfc for the same reason.
#pragma once
#include <cmath>

#include "kernels/activation/contract.h"

namespace slm::kernels {

inline float Act(float x, int act) {
  if (act == kActSilu) return x / (1.0f + std::exp(-x));
  if (act == kActGeluTanh) {
    const float u2 = 1.5957691216f * x * (1.0f + 0.044715f * x * x);  // 2 sqrt(2/pi)
    return x / (1.0f + std::exp(-u2));
  }
  return 0.5f * x * std::erfc(-x * 0.70710678119f);
}

}  // namespace slm::kernels
