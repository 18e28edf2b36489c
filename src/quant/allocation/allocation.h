// Types for the matrices by what they cost: a plan's types are replaced by those of least expected KLD within a budget, or
// by the smallest that are expected to stay within a KLD.
#pragma once
#include <cstdint>
#include <vector>

#include "quant/allocation/sensitivity.h"

namespace slm::quant {

// What happens where no types keep to a budget of bits.
enum class BudgetKind : uint8_t {
  kFirm,  // an error
  kWish,  // the smallest types
};

// At most one of bits and KLD is given; none: the types that lose least.
struct TypeBudget {
  double body_bpw = 0;  // bits per weight of the layers' matrices; 0: no limit
  double bpw = 0;       // of the whole file's tensors; 0: no limit
  double kld = 0;       // most expected KLD, where there is no limit of bits
  BudgetKind kind = BudgetKind::kFirm;
};

// Expected loss: what the measured matrices add, as if their losses added up.
struct ExpectedPoint {
  double body_bpw = 0;
  uint64_t bytes = 0;  // of the whole file's tensors
  double kld = 0;      // expected
};

// Replaces the types of the measured matrices in `plan`. Error: kLimit, when no types meet the budget; both numbers named.
Result<ExpectedPoint> AllocateTypes(const Sensitivities& sensitivities, const TypeBudget& budget, Plan* plan);

// What can be had between the smallest types and the largest: size against expected loss.
std::vector<ExpectedPoint> ExpectedCurve(const Sensitivities& sensitivities, const Plan& plan);

}  // namespace slm::quant
