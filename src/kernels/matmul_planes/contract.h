// Weights of 4 to 6 bits in planes times int8 activations: GGUF's Q5_0, Q5_1, Q4_K, Q5_K and Q6_K kept to the bit.
// f32[m, n] = q8[m, k] x w[n, k]; layout and arguments in kernels/packed/contract.h.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

// Kernel of the best tier <= isa for a kind with InPlanes(kind). Pure.
MatMulKernel MatMulPlanes(PackedKind kind, Isa isa);
// The same for bf16 tiles of many tokens (MatMulArgs::tiles); {nullptr, nullptr} below tier amx. Pure.
MatMulKernel MatMulPlanesWide(PackedKind kind, Isa isa);

// Packs rows [row_begin, row_end) (row_begin a multiple of 32) of W [n, k] into dst (the whole matrix' first byte). Rows of every
// operand follow each other without gaps, n_blocks = ceil(k / 32). Pure; different row ranges may run on different threads.
struct PackPlanesArgs {
  PackedKind kind;
  int64_t k, row_begin, row_end;
  const uint8_t* q;  // codes 0..31 (kQ6K: 0..63, kQ4K: 0..15) one a byte [rows][k]
  // kQ5, kQ5Min: [rows][n_blocks] scale and minimum (null for kQ5). K-quants: [rows][SuperBlocks(k)] d and -dmin (null for kQ6K).
  // f32, rounded to fp16.
  const float* scale;
  const float* min;
  const int8_t* sub_scale;  // K-quants: [rows][n_blocks], kQ6K [rows][2 * n_blocks]; else null
  const uint8_t* sub_min;   // kQ4K, kQ5K: [rows][n_blocks]; else null
  uint8_t* dst;
};
void PackPlanes(const PackPlanesArgs& args);

}  // namespace slm::kernels
