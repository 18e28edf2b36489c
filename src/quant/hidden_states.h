// Text as it enters the first layer, and what becomes of it from layer to layer: what calibration keeps of it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace slm::quant {

// Of one sequence, [n][E] f32.
struct HiddenStates {
  int n = 0;
  std::vector<float> rows;
};

// The embedded tokens of `sequences`. Error: kInvalidArgument (a token outside the vocabulary).
Result<std::vector<HiddenStates>> Embed(const model::Model& m, std::span<const std::vector<int32_t>> sequences);

// The error of a layer's output: mean over tokens of |want - got|^2 / |want|^2. `want`, `got` [n][width].
double OutputError(std::span<const float> want, std::span<const float> got, int64_t width);

}  // namespace slm::quant
