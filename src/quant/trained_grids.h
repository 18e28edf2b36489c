// Sources whose weights lie on a low-bit grid before anything is rounded: checkpoints trained for it (quantization-aware training, ternary
// BitNet), or made from a quantized file. Recognised by measuring the weights, whatever the file says of itself.
//
// Why it matters: such a grid can be kept exactly, and calibration would only move weights off the grid that their training found.
#pragma once
#include <span>
#include <string>

#include "model/model.h"
#include "quant/quant.h"

namespace slm::quant {

// True when sampled rows of a matrix lie on lattices in groups of 16 columns, which longer groups consist of.
bool LiesOnLattices(const model::Tensor& matrix);

// True when `recipe` writes every value of a `from` tensor as it is: a ternary type of ggml in blocks that hold its grid.
bool KeepsValues(DType from, DType to, const Recipe& recipe);

// What a plan has to say of `matrices` when most of their weights lie on lattices: a note, or empty. Error: kUnsupported, when `recipe` is
// calibrated and `source` is kFloatOnly.
Result<std::string> NoteLattices(const model::Model& m, std::span<const model::Tensor* const> matrices, const Recipe& recipe,
                                 SourceTypes source);

}  // namespace slm::quant
