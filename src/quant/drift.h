// What the last matrix of a layer can make up for: the layers and matrices before it are rounded, and what the layer gives has drifted
// from the float model's. The part of that drift which is linear in the matrix's input goes into its weights before they are rounded.
//
// Sources: the target of GPTAQ (arXiv 2504.02692), which corrects for inputs that differ from the float model's, here taken over the whole
// residual stream and solved as least squares.
#pragma once
#include "quant/matrix.h"
#include "quant/statistics.h"

namespace slm::quant {

// The change of a matrix [rows, width] that takes most of the error e [rows] out of what it gives for x [width]: the least
// E|e - change x|^2 with `damping` means of the diagonal of E[x x^T] on it. `joint`: statistics of rows (x, e) side by side. By conjugate
// gradients, which stop early: directions that hardly occur stay as they are. The same bits for any number of threads.
Matrix ShiftFor(const Machine& machine, const InputStatistics& joint, int64_t width, double damping);

}  // namespace slm::quant
