// The recipes by name. See quant.h.
#include "quant/quant.h"

namespace slm::quant {

const std::vector<Recipe>& Recipes() {
  static const std::vector<Recipe> kAll = [] {
    Recipe fast;
    Recipe standard;
    standard.name = "default";
    standard.weighted = standard.fold = standard.gptq = true;
    Recipe best = standard;
    best.name = "best";
    best.every_candidate = true;
    best.inputs = LayerInputs::kStored;
    best.sequences = 128;
    return std::vector<Recipe>{fast, standard, best};
  }();
  return kAll;
}

}  // namespace slm::quant
