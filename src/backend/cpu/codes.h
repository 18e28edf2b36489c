// Integer codes, scales and minimums of one row of a block-quantized file type: what packing needs instead of floats. The blocks
// are taken apart by model::ReadBlock; here their parts go where the packed kind has them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace slm::backend {

// Of one row of k values; n_blocks = k / 32.
struct RowCodes {
  uint8_t* q;         // [k] codes as the kind stores them, zero point included; 8-bit kinds: int8 codes in the same bytes
  float* scale;       // [n_blocks]; K-quants [k / 256] d
  float* min;         // kinds with a minimum: [n_blocks]; K-quants [k / 256] -dmin
  int8_t* sub_scale;  // K-quants: [n_blocks], kQ6K [2 * n_blocks]
  uint8_t* sub_min;   // K-quants with a minimum: [n_blocks]
  float* values;      // [k] scratch
};

// Any k values (a multiple of 32), in `values`, rounded to 8 bits per block of 32: sets q and scale.
void RoundRowCodes(int64_t k, RowCodes out);

// Reads one row of k values (k a multiple of the type's block) in the kind that ChooseKind gives for `dtype`.
void ReadRowCodes(DType dtype, const std::byte* row, int64_t k, RowCodes out);

}  // namespace slm::backend
