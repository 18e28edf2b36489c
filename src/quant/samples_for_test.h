// Samples of known distributions for tests, the same with every standard library. Test-only.
#pragma once
#include <cmath>

#include "base/splitmix64.h"

namespace slm::quant {

class Samples {
 public:
  explicit Samples(uint64_t seed) : numbers_(seed) {}
  double Uniform() { return (static_cast<double>(numbers_.Next() >> 11) + 0.5) * 0x1p-53; }                    // (0, 1)
  double Gaussian() { return std::sqrt(-2 * std::log(Uniform())) * std::cos(6.283185307179586 * Uniform()); }  // Box-Muller
  double StudentT5() {
    const double z = Gaussian();
    double chi2 = 0;
    for (int i = 0; i < 5; ++i) {
      const double x = Gaussian();
      chi2 += x * x;
    }
    return z / std::sqrt(chi2 / 5);
  }

 private:
  SplitMix64 numbers_;
};

}  // namespace slm::quant
