// Low-power blockwise quantization: 4-bit codes whose block scales are whole multiples, 1 to 16, of a scale of their row, so that every
// value lies on one 8-bit grid of the row and integer accelerators need no float multiply per block.
//
// Source: AIMET's definition (grouped block quantization with a decompressed width of 8): row scale = largest block scale / 2^(8 - 4).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads.h"
#include "quant/block_form.h"

namespace slm::quant {

// Value of code q in block b of row i: row_scales[i] * scales[i][b] * (q - 8).
struct LpbqRows {
  int64_t rows = 0, width = 0;
  int group = 32;
  std::vector<float> row_scales;  // [rows]
  std::vector<uint8_t> scales;    // [rows][width / group], 1 to 16
  std::vector<uint8_t> codes;     // [rows][width], 0 to 15

  void Values(int64_t i, float* out) const;  // out [width]
};

// The form of such rows for those who choose codes: 4 bits, a grid a block of `group` weights.
BlockForm LpbqForm(int group);

// The grids of a row's blocks, `grids` [row.size() / form.group]: multiples of a 16th of the largest, which compilers of accelerators find
// again from the scales alone. `u` [row.size()] or nullptr. kNearest: scales from the blocks' ranges, 2 amax / 15, rounded to the nearest
// multiple. kRefit: the multiple with the least weighted error beside the block's own refitted scale; never worse than kNearest in the
// row's weighted error. Thread-safe.
void ChooseLpbqGrids(const BlockForm& form, Search search, std::span<const float> row, const float* u, Grid* grids);

// What is read back of one row; `values` [w.size()]. Thread-safe.
void StoreLpbqRow(Search search, std::span<const float> w, int group, const float* u, float* values);

// w [rows][width], finite; `group` divides the width; `u` [width] or nullptr. The same for any number of threads.
LpbqRows QuantizeLpbq(Search search, const float* w, int64_t rows, int64_t width, int group, const float* u, ThreadTeam& team);

}  // namespace slm::quant
