// Weights that lie on evenly spaced values through 0 before anything is rounded: a search over scales may miss that grid, of which a few
// values are used, and it is the one grid that loses nothing.
#pragma once
#include <optional>
#include <span>

namespace slm::quant {

// Values that are `step` times whole numbers from `low` to `high`, low <= 0 <= high.
struct Lattice {
  double step = 0;
  int low = 0, high = 0;
};
inline constexpr int kLatticeSpan = 15;  // high - low: 4 bits

// The coarsest lattice of at most 16 values that `w` lies on, as far as the type tells from which the values come (F32, F16 or BF16, seen
// from their bits). nullopt: there is none, or all values are alike, which says nothing. Thread-safe.
std::optional<Lattice> LatticeOf(std::span<const float> w);

}  // namespace slm::quant
