// One row of a packed matrix back to f32: the token embedding read from the same bytes that the tied head streams.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {

// w: packed matrix of `kind` with width k (unpadded); row >= 0; out [k] f32 = the exact values the packed codes stand for,
// each times `scale`. Pure.
void EmbedRow(PackedKind kind, const uint8_t* w, int64_t k, int64_t row, float scale, float* out);

}  // namespace slm::kernels
