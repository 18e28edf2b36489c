// 8-bit weights times int8 activations: f32[m, n] = q8[m, k] x q8[n, k]; layout and arguments in kernels/packed/contract.h.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

// Kernel of the best tier <= isa for kQ8 or kQ8Min. Pure.
MatMulKernel MatMulQ8(PackedKind kind, Isa isa);
// The same for bf16 tiles of many tokens (MatMulArgs::tiles); {nullptr, nullptr} below tier amx. Pure.
MatMulKernel MatMulQ8Wide(PackedKind kind, Isa isa);

// Packs rows [row_begin, row_end) (row_begin a multiple of 32) of W [n, k] into dst (the whole matrix' first byte).
// `q`: signed codes -128..127 [row_end - row_begin][k]; `scale`, `min` as in PackQ4. Pure, thread-safe on disjoint ranges.
struct PackQ8Args {
  PackedKind kind;
  int64_t k, row_begin, row_end;
  const int8_t* q;
  const float* scale;
  const float* min;
  uint8_t* dst;
};
void PackQ8(const PackQ8Args& args);

}  // namespace slm::kernels
