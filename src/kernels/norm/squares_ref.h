// 1 / RMS of a row: the order of additions that every tier repeats bit for bit, so that a norm fused with quantization, or
// evaluated on another CPU, gives the same values: 32 interleaved partial sums and a halving tree.
#pragma once
#include <cmath>

namespace slm::kernels {

inline float InverseRms(const float* x, float eps, int n) {
  constexpr int kParts = 32;
  float part[kParts] = {};
  for (int i = 0; i < n; ++i) part[i % kParts] = std::fma(x[i], x[i], part[i % kParts]);
  for (int half = kParts / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return 1.0f / std::sqrt(part[0] / static_cast<float>(n) + eps);
}

}  // namespace slm::kernels
