// cos and sin tables of the rotary embedding for every position of a context. Pure arithmetic; not a door.
//
// Sources: RoFormer (arXiv 2104.09864) eq. 15; position interpolation (arXiv 2306.15595); Llama 3.1's frequency rule as its
// model card and the transformers configuration describe it; LongRoPE (arXiv 2402.13753).
#pragma once
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace slm::graph {

struct RopeTable {
  std::vector<float> cos, sin;  // [S, R/2] row-major, attention_factor multiplied in
};

// Angular frequencies [R/2] in radians per token, scaling applied. `context` = S decides LongRoPE's set: the long factors as
// soon as S is larger than original_context, for all positions. Errors: kCorrupt (a list of the wrong length, a number that
// makes no sense).
Result<std::vector<double>> RopeFrequencies(const model::RopeConfig& rope, int context);

// The tables for positions [0, context). Errors: as RopeFrequencies.
Result<RopeTable> BuildRopeTable(const model::RopeConfig& rope, int context);

}  // namespace slm::graph
