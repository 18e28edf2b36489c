// Low-power blockwise quantization: 4-bit codes whose block scales are whole multiples, 1 to 16, of a scale of their row, so that every
// value lies on one 8-bit grid of the row and integer accelerators need no float multiply per block.
//
// Source: AIMET's definition (grouped block quantization with a decompressed width of 8): row scale = largest block scale / 2^(8 - 4).
#pragma once
#include <span>

#include "quant/block_form.h"

namespace slm::quant {

// The form of such rows: 4 bits, a grid a block of `group` weights.
BlockForm LpbqForm(int group);

// The grids of a row's blocks, `grids` [row.size() / form.group]: multiples of a 16th of the largest, which compilers of accelerators find
// again from the scales alone. `u` [row.size()] or nullptr. kNearest: scales from the blocks' ranges, 2 amax / 15, rounded to the nearest
// multiple. kRefit: the multiple with the least weighted error beside the block's own refitted scale; never worse than kNearest in the
// row's weighted error. Thread-safe.
void ChooseLpbqGrids(const BlockForm& form, Search search, std::span<const float> row, const float* u, Grid* grids);

}  // namespace slm::quant
