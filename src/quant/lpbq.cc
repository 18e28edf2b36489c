// See lpbq.h.
#include "quant/lpbq.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace slm::quant {
namespace {

constexpr int kZero = 8, kBits = 4, kMost = 16;
constexpr int kDown = 3, kUp = 1;  // multiples that are tried beside the nearest

Grid GridOf(float row_scale, int multiple) { return {.scale = row_scale * static_cast<float>(multiple), .min = 0, .zero = kZero}; }

float RangeScale(std::span<const float> w) {
  float most = 0;
  for (const float v : w) most = std::max(most, std::abs(v));
  return 2 * most / 15;
}

int ChooseMultiple(Search search, float row_scale, std::span<const float> w, const float* u) {
  const int near = std::clamp(static_cast<int>(std::nearbyint(RangeScale(w) / row_scale)), 1, kMost);
  if (search == Search::kNearest) return near;
  int best = near;
  double least = std::numeric_limits<double>::infinity();
  for (int m = std::max(near - kDown, 1); m <= std::min(near + kUp, kMost); ++m) {
    const double error = AssignCodes(GridOf(row_scale, m), kBits, w, u, nullptr);
    if (error >= least) continue;
    least = error;
    best = m;
  }
  return best;
}

// One row: its scale, the multiples of its blocks [blocks], its codes [width].
float QuantizeRow(Search search, std::span<const float> w, size_t group, const float* u, uint8_t* multiples, uint8_t* codes) {
  float most = 0;
  for (size_t at = 0; at < w.size(); at += group) most = std::max(most, RangeScale(w.subspan(at, group)));
  const float scale = most > 0 ? most / kMost : 1.0f;
  for (size_t at = 0; at < w.size(); at += group) {
    const std::span<const float> block = w.subspan(at, group);
    const int multiple = ChooseMultiple(search, scale, block, u ? u + at : nullptr);
    multiples[at / group] = static_cast<uint8_t>(multiple);
    AssignCodes(GridOf(scale, multiple), kBits, block, nullptr, codes + at);
  }
  return scale;
}

}  // namespace

void StoreLpbqRow(Search search, std::span<const float> w, int group, const float* u, float* values) {
  const auto n = static_cast<size_t>(group);
  std::vector<uint8_t> multiples(w.size() / n), codes(w.size());
  const float scale = QuantizeRow(search, w, n, u, multiples.data(), codes.data());
  for (size_t j = 0; j < w.size(); ++j) values[j] = ValueOf(GridOf(scale, multiples[j / n]), codes[j]);
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
  out.codes.resize(static_cast<size_t>(rows * width));
  auto work = [&](int thread, int n_threads) {
    const Range mine = SplitRange(rows, 1, thread, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const std::span<const float> row(w + i * width, static_cast<size_t>(width));
      out.row_scales[static_cast<size_t>(i)] =
          QuantizeRow(search, row, static_cast<size_t>(group), u, out.scales.data() + i * blocks, out.codes.data() + i * width);
    }
  };
  team.Run(work);
  return out;
}

}  // namespace slm::quant
