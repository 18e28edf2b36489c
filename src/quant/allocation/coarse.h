// Weights rounded coarsely, to see what an error of them changes.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

namespace slm::quant {

// Four bits in groups of 32 on a grid that no format has (the largest value falls between two codes): weights that were dequantized from
// some format are changed like any other. A row, or rows of whole groups one after another.
inline void RoundCoarsely(std::span<float> values) {
  for (size_t g = 0; g < values.size(); g += 32) {
    const auto group = values.subspan(g, std::min<size_t>(32, values.size() - g));
    float most = 0;
    for (const float v : group) most = std::max(most, std::abs(v));
    const float scale = most / 6.5f;
    for (float& v : group) v = scale > 0 ? std::nearbyint(v / scale) * scale : 0;
  }
}

}  // namespace slm::quant
