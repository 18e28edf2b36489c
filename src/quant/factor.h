// The Cholesky factor of a matrix of second moments, in f64: what error feedback (gptq.h) needs of it.
//
// Why own: the only dense solver of the project; in f32 the small pivots of inputs with massive channels would be lost.
// Source: right-looking blocked factorisation (Golub, Van Loan: Matrix Computations, 4.2).
#pragma once
#include <cstdint>

#include "base/cpu_features.h"
#include "base/threads.h"

namespace slm::quant {

// `a` [n][stride], of which the part on and below the diagonal is read: overwritten with L, a = L L^T; above the diagonal is undefined
// afterwards. False: a pivot is not above 1e-12 of its diagonal, or not finite; `a` is then undefined. The same bits for any number of
// threads; on one tier.
bool FactorLower(double* a, int64_t n, int64_t stride, Isa isa, ThreadTeam& team);

}  // namespace slm::quant
