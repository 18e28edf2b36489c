// Encoders of ggml's block formats: the grids of grid.h, written as llama.cpp and model::Dequantize read them.
//
// Source of the layouts: ggml-common.h (block_q4_0 … block_q6_K).
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "quant/block_form.h"

namespace slm::quant {

// The types that EncodeRow writes: F32, F16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K, MXFP4.
bool CanEncode(DType dtype);

// `dtype`, or what stands in for it in rows of `width`: for blocks of 256 those of 32, then F16.
DType FittingType(DType dtype, int64_t width);

// Encodes `w` (a whole number of blocks of `dtype`, finite values) to `out` [RowBytes(dtype, w.size())]. `u` as in ChooseGrid.
// A value or scale beyond the range of f16 becomes infinite in the bytes: the caller checks what it gets back. Thread-safe.
void EncodeRow(DType dtype, Search search, std::span<const float> w, const float* u, std::byte* out);

// What an error of each value counts when nothing is known about the inputs: `u` [w.size()] or nullptr for 1.
const float* PlainErrorWeights(DType dtype, std::span<const float> w, std::vector<float>* u);

// A block of a quantized type from what was chosen elsewhere: `grids` [FormOf(dtype).groups], `codes` [Info(dtype).block], the numbers
// already rounded to their stored form. Writes Info(dtype).block_bytes. Thread-safe.
void WriteBlock(DType dtype, const Shared& shared, const Grid* grids, const uint8_t* codes, std::byte* out);

}  // namespace slm::quant
