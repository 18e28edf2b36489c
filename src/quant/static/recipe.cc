// The recipe `npu` (static.h). Down projections and the head keep 8 bits, as in the recipes that ExecuTorch and Qualcomm ship for models of
// this size; what was measured is in docs/npu.md.
#include <algorithm>

#include "quant/static/static.h"

namespace slm::quant {
namespace {

WeightScheme Channel(int bits) { return {.storage = Storage::kGrid, .grid = Scheme::kSymmetric, .bits = bits, .group = 0}; }

const Recipe& Named(const char* name) {
  return *std::find_if(Recipes().begin(), Recipes().end(), [&](const Recipe& r) { return r.name == name; });
}

}  // namespace

StaticRecipe NpuRecipe(NpuWeights weights) {
  StaticRecipe r{.body = Channel(8), .down = Channel(8), .head = Channel(8), .how = Named("npu")};
  if (weights == NpuWeights::kBlocks4) r.body = {.storage = Storage::kLpbq, .group = 32};
  if (weights == NpuWeights::kChannel4) r.body = Channel(4);
  if (weights != NpuWeights::kChannel8) return r;
  r.how.weighted = r.how.gptq = false;  // 8 bits need no error feedback: the text is for ranges
  r.how.sequences = 8;
  return r;
}

}  // namespace slm::quant
