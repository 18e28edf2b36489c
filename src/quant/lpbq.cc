// See lpbq.h.
#include "quant/lpbq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace slm::quant {
namespace {

constexpr int kZero = 8, kBits = 4, kMost = 16;

Grid GridOf(float row_scale, int multiple) { return {.scale = row_scale * static_cast<float>(multiple), .min = 0, .zero = kZero}; }

float RangeScale(std::span<const float> w) {
  float most = 0;
  for (const float v : w) most = std::max(most, std::abs(v));
  return 2 * most / 15;
}

// Multiples of the row's scale for wished scales, the largest of which gets kMost; with kRefit the neighbours are tried, too. Returns the
// row's weighted error.
double RoundScales(Search search, std::span<const float> wished, std::span<const float> row, const float* u, int group, Grid* grids) {
  const auto largest = static_cast<size_t>(std::max_element(wished.begin(), wished.end()) - wished.begin());
  const float unit = wished[largest] > 0 ? wished[largest] / kMost : 1.0f;
  double total = 0;
  for (size_t b = 0; b < wished.size(); ++b) {
    const std::span<const float> block = row.subspan(b * static_cast<size_t>(group), static_cast<size_t>(group));
    const float* weights = u ? u + b * static_cast<size_t>(group) : nullptr;
    const int near = b == largest ? kMost : std::clamp(static_cast<int>(std::nearbyint(wished[b] / unit)), 1, kMost);
    const int reach = search == Search::kRefit && b != largest ? 1 : 0;
    double least = std::numeric_limits<double>::infinity();
    grids[b] = GridOf(unit, near);  // also where squares are infinite
    for (int m = std::max(near - reach, 1); m <= std::min(near + reach, kMost); ++m) {
      const double error = AssignCodes(GridOf(unit, m), kBits, block, weights, nullptr);
      if (error >= least) continue;
      least = error;
      grids[b] = GridOf(unit, m);
    }
    total += least;
  }
  return total;
}

}  // namespace

BlockForm LpbqForm(int group) {
  return {.scheme = Scheme::kSymmetric, .bits = kBits, .group = group, .store = Store::kF32, .row_multiples = kMost};
}

void ChooseLpbqGrids(const BlockForm& form, Search search, std::span<const float> row, const float* u, Grid* grids) {
  const auto group = static_cast<size_t>(form.group), blocks = row.size() / group;
  std::vector<float> wished(blocks);
  for (size_t b = 0; b < blocks; ++b) wished[b] = RangeScale(row.subspan(b * group, group));
  const double nearest = RoundScales(Search::kNearest, wished, row, u, form.group, grids);
  if (search == Search::kNearest) return;
  std::vector<Grid> better(blocks);
  for (size_t b = 0; b < blocks; ++b)
    wished[b] = ChooseGrid({form.scheme, form.bits, search, form.store}, row.subspan(b * group, group), u ? u + b * group : nullptr).scale;
  if (RoundScales(search, wished, row, u, form.group, better.data()) < nearest) std::copy(better.begin(), better.end(), grids);
}

}  // namespace slm::quant
