// f32 activations times F16, BF16 or F32 weights, f32 accumulation; layout and arguments in kernels/packed/contract.h.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

// Kernel of the best tier <= isa for kF16, kBF16 or kF32. Per row and token: acc = fma(x[k], w[k], acc) in K order. Pure.
MatMulKernel MatMulFloat(PackedKind kind, Isa isa);

// Packs rows [row_begin, row_end) (row_begin a multiple of 32) of row-major W [.., k] into dst; `rows` points at row_begin's
// values in the kind's own element type. Pure, thread-safe on disjoint ranges.
void PackFloat(PackedKind kind, int64_t k, int64_t row_begin, int64_t row_end, const void* rows, uint8_t* dst);

}  // namespace slm::kernels
