// How `slm quantize` lets types be chosen by sensitivity: the budget of each try, and what JSON says about it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/allocation/allocation.h"
#include "quant/quant.h"

namespace slm::cli {

// Files are written and judged at most this often; the last time with the types that lose least.
inline constexpr size_t kMostTries = 4;

// One choice of types under --max-kld, and what the gate found.
struct Try {
  quant::ExpectedPoint expected;
  double kld = 0;     // measured; 0: not yet
  bool last = false;  // nothing loses less
};

// The expected KLD that the next try may have: what the last one was expected to have, less in proportion to its miss, and more than that.
// nullopt: take the types that lose least.
std::optional<double> NextBudget(std::span<const Try> tries, double most_kld);

// Types for `plan` as its recipe wants them; under a budget of KLD the next try after `tries`, which gets larger each time. Errors: kLimit.
Result<Try> ChooseTypes(const quant::Sensitivities& sensitivities, std::span<const Try> tries, quant::Plan* plan);

// What the measurement says about the source: matrices whose values lie on the grid of a type already.
std::vector<std::string> GridNotes(const quant::Sensitivities& sensitivities);
// "types by sensitivity: 12 q5_0, 3 q4_0; token_embd.weight q8_0; expected KLD 0.0012"
std::string TypesText(const quant::Plan& plan, const Try& chosen);

// "try 1: 4.83 bits in the layers, expected KLD 0.0480, measured 0.0512: missed"
std::string TryText(size_t number, const Try& one, double most_kld);

// {types, vocabulary, together, tokens, expected, curve, tries}
nlohmann::ordered_json AllocationJson(const quant::Sensitivities& sensitivities, const quant::Plan& plan, std::span<const Try> tries);
// Of the tensor, {kld, errors: {type: error}, loss}; null when its type was not chosen by sensitivity.
nlohmann::ordered_json SensitivityJson(const quant::Sensitivities& sensitivities, const quant::Choice& choice);

}  // namespace slm::cli
