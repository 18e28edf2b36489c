// See lattice.h.
#include "quant/lattice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace slm::quant {
namespace {

constexpr int kMostGaps = 4;  // steps that may lie between the two values next to each other

// Half a unit in the last place, relative, of the narrowest type that holds all values.
double RoundingOf(std::span<const float> w) {
  uint32_t bits = 0;
  for (const float v : w) bits |= std::bit_cast<uint32_t>(v);
  if ((bits & 0xffffu) == 0) return 0x1p-8;   // BF16
  if ((bits & 0x1fffu) == 0) return 0x1p-11;  // F16
  return 0x1p-23;                             // F32; twice that, for products that were rounded in another order
}

// The different values and 0, sorted; false when there are more than a lattice has.
bool Distinct(std::span<const float> w, std::vector<float>* out) {
  out->assign(1, 0.0f);
  for (const float v : w) {
    const auto at = std::lower_bound(out->begin(), out->end(), v);
    if (at != out->end() && *at == v) continue;
    if (out->size() > kLatticeSpan) return false;
    out->insert(at, v);
  }
  return true;
}

// The lattice whose `count`-th step is the largest value, if all values lie on it, within `rounding` on both sides.
std::optional<Lattice> Fitting(std::span<const float> values, double extreme, double count, double rounding) {
  if (count < 1 || count > kLatticeSpan) return std::nullopt;
  Lattice l{.step = extreme / count, .low = 0, .high = 0};
  for (const float v : values) {
    const double t = std::nearbyint(static_cast<double>(v) / l.step);
    if (!(std::abs(static_cast<double>(v) - t * l.step) <= 2 * rounding * std::abs(static_cast<double>(v)))) return std::nullopt;
    l.low = std::min(l.low, static_cast<int>(t));
    l.high = std::max(l.high, static_cast<int>(t));
  }
  return l.high - l.low <= kLatticeSpan ? std::optional(l) : std::nullopt;
}

}  // namespace

std::optional<Lattice> LatticeOf(std::span<const float> w) {
  std::vector<float> values;
  if (!Distinct(w, &values) || values.size() < 2 || !std::isfinite(values.front()) || !std::isfinite(values.back())) return std::nullopt;
  if (std::all_of(w.begin(), w.end(), [&](float v) { return v == w[0]; })) return std::nullopt;
  double gap = static_cast<double>(values.back()) - static_cast<double>(values.front());
  for (size_t i = 1; i < values.size(); ++i) gap = std::min(gap, static_cast<double>(values[i]) - static_cast<double>(values[i - 1]));
  const double rounding = RoundingOf(w);
  const double extreme = std::max(-static_cast<double>(values.front()), static_cast<double>(values.back()));
  for (int steps = 1; steps <= kMostGaps; ++steps)
    for (const int beside : {0, -1, 1})  // BF16 rounds the largest values by so much that the gap is off by a tenth
      if (auto l = Fitting(values, extreme, std::nearbyint(extreme * steps / gap) + beside, rounding)) return l;
  return std::nullopt;
}

}  // namespace slm::quant
