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
    Recipe npu = standard;  // ranges of activations are those of the float model, so nothing is folded
    npu.name = "npu";
    npu.fold = false;
    npu.grids = WeightGrids::kNpu;
    return std::vector<Recipe>{fast, standard, best, npu};
  }();
  return kAll;
}

}  // namespace slm::quant
