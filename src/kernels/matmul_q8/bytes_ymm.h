// How AVX-VNNI reads 8-bit weights: half of a step (kernels/packed/matmul_ymm.h). A line is an operand as it lies.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {
namespace {

struct Bytes {
  using Weights = __m256i;  // 8 rows x 4 K as unsigned bytes
  static constexpr int kBits = 8;
  template <bool>
  static constexpr int ZeroPoint() {
    return 128;
  }
  static __m256i Load(const uint8_t* block, int c, int v) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(block + c * 2 * kLine + v * 32));
  }
};

}  // namespace
}  // namespace slm::kernels
