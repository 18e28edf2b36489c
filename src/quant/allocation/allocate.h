// Which tensor gets which type when the whole has a budget: the least loss within so many bytes, or the fewest bytes within a loss.
//
// Losses are measured, of each tensor with each type, and add up: KLD to first order adds over tensors, as errors of outputs do. Choosing
// one type per tensor under a budget is the multiple-choice knapsack; its Lagrangian relaxation (Sinha, Zoltners 1979) walks the lower
// convex hulls of the tensors' (bytes, loss) points by falling gain per byte. What the last step leaves over is spent on single moves.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace slm::quant {

// A type that a tensor could have.
struct TypeOption {
  uint64_t bytes = 0;
  double loss = 0;  // finite; may be negative, where a measurement is below its noise
};
// The options of one tensor, or of tensors that share their type; in any order, at least one.
using TypeOptions = std::vector<TypeOption>;

struct Allocation {
  std::vector<int> chosen;  // index of the option, for each tensor
  uint64_t bytes = 0;
  double loss = 0;
  // No allocation within the budget has a loss below (for a budget of bytes), or fewer bytes than (for a budget of loss), this.
  double bound = 0;
};

// The least loss in at most `most_bytes`. Error: kLimit, when the smallest options take more; both numbers named.
Result<Allocation> AllocateBytes(std::span<const TypeOptions> tensors, uint64_t most_bytes);

// The fewest bytes with a loss of at most `most_loss`. Error: kLimit, when the best options lose more; both numbers named.
Result<Allocation> AllocateLoss(std::span<const TypeOptions> tensors, double most_loss);

}  // namespace slm::quant
