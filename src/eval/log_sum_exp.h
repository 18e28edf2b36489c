// The normalizer of a row of logits, of which log-probabilities are differences. Of this room only.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

namespace slm::eval {

// ln of the sum of exp of a row [V], not empty; the largest logit is taken out first, so that nothing overflows.
inline double LogSumExp(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace slm::eval
