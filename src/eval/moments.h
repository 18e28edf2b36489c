// Mean and spread of a stream of numbers, by Welford's update: sums of squares would cancel where the spread is small against the
// mean (Technometrics 4, 1962).
#pragma once
#include <cmath>
#include <cstdint>

#include "eval/eval.h"

namespace slm::eval {

struct Moments {
  int64_t n = 0;
  double mean = 0;
  double m2 = 0;  // sum of squared deviations from the mean

  // Returns how far x was from the mean before, which co-moments need.
  double Add(double x) {
    const double before = x - mean;
    mean += before / static_cast<double>(++n);
    m2 += before * (x - mean);
    return before;
  }
  // Standard error of the mean, as llama-perplexity has it: sqrt(m2 / n / (n - 1)).
  double Sigma() const { return n > 1 ? std::sqrt(m2 / static_cast<double>(n) / static_cast<double>(n - 1)) : 0; }
  Estimate Of() const { return {mean, Sigma()}; }
};

// Perplexity from the moments of the negative log-probabilities.
inline Perplexity PerplexityOf(const Moments& nll, int windows) {
  Perplexity p;
  p.scored_tokens = nll.n;
  p.windows = windows;
  if (nll.n == 0) return p;
  p.mean_nll = nll.mean;
  p.sigma_nll = nll.Sigma();
  p.ppl = std::exp(p.mean_nll);
  p.ppl_sigma = p.ppl * p.sigma_nll;
  return p;
}

}  // namespace slm::eval
