// 4-bit weights times int8 activations: f32[m, n] = q8[m, k] x q4[n, k]; layout and arguments in kernels/packed/contract.h.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

// Kernel of the best tier <= isa for kQ4 or kQ4Min. Pure.
MatMulKernel MatMulQ4(PackedKind kind, Isa isa);
// The same for bf16 tiles of many tokens (MatMulArgs::tiles); {nullptr, nullptr} below tier amx. Pure.
MatMulKernel MatMulQ4Wide(PackedKind kind, Isa isa);

// Packs rows [row_begin, row_end) (row_begin a multiple of 32) of W [n, k] into dst (the whole matrix' first byte).
// `q`: 4-bit codes one a byte [row_end - row_begin][k]; `scale`, `min`: f32 per row and block of 32 (min null for kQ4),
// [row_end - row_begin][ceil(k / 32)]; both are rounded to fp16. Pure; different row ranges may run on different threads.
struct PackQ4Args {
  PackedKind kind;
  int64_t k, row_begin, row_end;
  const uint8_t* q;
  const float* scale;
  const float* min;
  uint8_t* dst;
};
void PackQ4(const PackQ4Args& args);

}  // namespace slm::kernels
