// Codes moved by signed gradient descent: each weight has an offset that is added before rounding, each group a factor of its scale, and
// both move a little against the sign of the gradient of the error of the products, as if rounding had the slope 1.
//
// Source: SignRound (Cheng et al., arXiv 2309.05516), with tr(D H D^T) for the change D of the weights as the error, so that a step is one
// product and no text is run again.
#pragma once
#include <cstdint>

#include "quant/gptq.h"
#include "quant/matrix.h"

namespace slm::quant {

struct SignRoundOptions {
  int steps = 200;
  double rate = 0;  // of the first step, falling to 0; 0: 1 / steps, so that an offset moves by at most a half
};

// Moves the codes of `start` (rows of w [rows][width]) and, where groups have scales of their own, its scales. `second` [width, width] of
// the input, packed in `times_second`. Row by row what had the least error is kept, so no row is worse than it was. The same for any number
// of threads. Returns the error of all rows.
double SolveSignRound(const Machine& machine, const Multiplier& times_second, const float* w, const SignRoundOptions& options,
                      CodedRows* start);

}  // namespace slm::quant
