// What a row lost and what there was, as sums of squares. Internal to quant.
#pragma once
#include <span>

#include "base/check.h"

namespace slm::quant {

struct RowSums {
  double lost = 0, power = 0;
};

inline double Squares(std::span<const float> v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return sum;
}

// Of the difference; both of one length.
inline double SquaresLost(std::span<const float> w, std::span<const float> stored) {
  SLM_ASSERT(w.size() == stored.size());
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double d = static_cast<double>(w[i]) - static_cast<double>(stored[i]);
    sum += d * d;
  }
  return sum;
}

}  // namespace slm::quant
