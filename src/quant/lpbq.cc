// See lpbq.h.
#include "quant/lpbq.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "quant/schemes.h"

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

void StoreLpbqRow(Search search, std::span<const float> w, int group, const float* u, float* values) {
  const auto n = static_cast<size_t>(group);
  std::vector<Grid> grids(w.size() / n);
  std::vector<uint8_t> codes(n);
  ChooseLpbqGrids(LpbqForm(group), search, w, u, grids.data());
  for (size_t b = 0; b < grids.size(); ++b) {
    AssignCodes(grids[b], kBits, w.subspan(b * n, n), nullptr, codes.data());
    for (size_t j = 0; j < n; ++j) values[b * n + j] = ValueOf(grids[b], codes[j]);
  }
}

void LpbqRows::Values(int64_t i, float* out) const {
  const int64_t blocks = width / group;
  for (int64_t j = 0; j < width; ++j)
    out[j] = ValueOf(GridOf(row_scales[static_cast<size_t>(i)], scales[static_cast<size_t>(i * blocks + j / group)]),
                     codes[static_cast<size_t>(i * width + j)]);
}

LpbqRows QuantizeLpbq(Search search, const float* w, int64_t rows, int64_t width, int group, const float* u, ThreadTeam& team) {
  SLM_ASSERT(group > 0 && width % group == 0);
  LpbqRows out{.rows = rows, .width = width, .group = group};
  const int64_t blocks = width / group;
  out.row_scales.resize(static_cast<size_t>(rows));
  out.scales.resize(static_cast<size_t>(rows * blocks));
  const CodedRows coded = QuantizeGrid(LpbqForm(group), search, w, rows, width, u, team);
  out.codes = coded.codes;
  for (int64_t i = 0; i < rows; ++i) {
    const std::span<const Grid> grids(coded.grids.data() + i * blocks, static_cast<size_t>(blocks));
    const auto largest = std::max_element(grids.begin(), grids.end(), [](const Grid& a, const Grid& b) { return a.scale < b.scale; });
    const float unit = out.row_scales[static_cast<size_t>(i)] = largest->scale / kMost;
    for (size_t b = 0; b < grids.size(); ++b)
      out.scales[static_cast<size_t>(i * blocks) + b] = static_cast<uint8_t>(std::nearbyint(grids[b].scale / unit));
  }
  return out;
}

}  // namespace slm::quant
