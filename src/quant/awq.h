// The fold of activation-aware weight quantization: channels that carry much are made larger in the weights before rounding, and the
// operator before them is divided by the same factors, so that nothing but the rounding changes.
//
// Source: AWQ (arXiv 2306.00978), with the scale from both sides, mean |x|^a / mean |w|^(1 - a), of its released code. Differs from it:
// the error is measured with the second moments of the input, tr(D E[x x^T] D^T) for the change D of the weights, on some rows; and
// "no fold" is always a candidate.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "quant/matrix.h"
#include "quant/statistics.h"
#include "quant/stored_form.h"

namespace slm::quant {

// A matrix whose input channels are scaled: f32 [rows, width], and what it will be stored as.
struct FoldMember {
  std::span<const float> values;
  int64_t rows = 0;
  StoredForm form;
};

struct FoldOptions {
  int points = 20;         // exponents 0, 1/points … (points - 1)/points
  int64_t max_rows = 256;  // of all members together that the error is measured on, spread evenly
  Search search = Search::kRefit;
  // [width] or empty: channels with the same number get the same factor.
  std::vector<int32_t> tied;
};

struct Fold {
  std::vector<float> scale;              // [width], > 0; empty: no fold is best
  double error = 0, identity_error = 0;  // of the rows that were measured
  double exponent = 0;
};

// The best factors for matrices that read the same input. The same for any number of threads.
Fold SearchFold(const Machine& machine, std::span<const FoldMember> members, const InputStatistics& input, const FoldOptions& options);

// The factors of one exponent. `x` mean |x|, `w` mean relative |w| by channel; geometric middle of largest and smallest is 1.
std::vector<float> FoldFactors(std::span<const float> x, std::span<const float> w, double exponent);

// Mean of |w| relative to the largest of its group of `group`, by channel, over all rows of all members.
std::vector<float> RelativeMagnitudes(std::span<const FoldMember> members, int64_t width, int64_t group);

}  // namespace slm::quant
