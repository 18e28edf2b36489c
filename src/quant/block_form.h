// How a block of a format holds the grids of its groups: what a quantizer may choose, and the numbers as they will be stored.
//
// A plain block has one group with numbers of its own. A super-block (ggml's K-quants) has groups whose scales are small whole
// multiples of a shared number; these are chosen by the error of the block as stored, not by rounding alone.
#pragma once
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "quant/grid.h"

namespace slm::quant {

struct BlockForm {
  Scheme scheme = Scheme::kSymmetric;
  int bits = 4;
  int group = 32;  // weights that share a grid
  int groups = 1;  // in a block; more than 1: scale = d * whole number, min = -d_min * whole number
  Store store = Store::kF16;
  int least_zero = 0;                 // of kIntegerZero: 1 in files that keep zero - 1
  int scale_low = 0, scale_high = 0;  // range of the whole numbers of scales; of minimums: 0 to 63
  int row_multiples = 0;              // scales are whole multiples, 1 to this, of a number of their row (lpbq.h); 0: each its own

  int width() const { return group * groups; }
  bool is_super() const { return groups > 1; }
};
inline constexpr int kMostGroups = 16;
inline constexpr int kMostMin = 63;

// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K.
BlockForm FormOf(DType dtype);

// What the groups of a super-block share.
struct Shared {
  float d = 0, d_min = 0;
};

// The whole numbers of a group, from its grid: exact, since the grid was made of them.
int ScaleNumber(const Shared& shared, const Grid& grid);
int MinNumber(const Shared& shared, const Grid& grid);
// The grid that the numbers stand for.
Grid GridOf(const BlockForm& form, const Shared& shared, int scale, int min);

// The grids of a block for `w` [form.width()] with error weights `u` or nullptr; `grids` [form.groups]. The sum of weighted square errors
// with kRefit is not above that with kNearest. Thread-safe.
Shared ChooseBlock(const BlockForm& form, Search search, std::span<const float> w, const float* u, Grid* grids);

}  // namespace slm::quant
