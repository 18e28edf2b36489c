// Orthogonal matrices whose entries have one size: what spreads single large channels over all of them.
//
// Sources: Sylvester's doubling, and Paley's two constructions from the squares modulo a prime (1933).
#pragma once
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace slm::quant {

// Signs [n][n] of a Hadamard matrix. Error: kUnsupported (no construction here gives the order: n is 1, 2 or a multiple of 4, and a power
// of 2 times 1, q + 1 or 2 (q + 1) for a prime q).
Result<std::vector<int8_t>> HadamardSigns(int64_t n);

// The same divided by sqrt(n), its columns with signs drawn from `seed`: [n][n] orthogonal.
Result<std::vector<float>> RandomHadamard(int64_t n, uint64_t seed);

}  // namespace slm::quant
