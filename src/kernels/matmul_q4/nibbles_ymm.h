// How the 256-bit kernels read 4-bit weights: the half of a step (kernels/packed/matmul_ymm.h) that AVX2 and AVX-VNNI share.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {
namespace {

struct Nibbles {
  using Weights = __m256i;  // 8 rows x 4 K as unsigned bytes 0..15
  static constexpr int kBits = 4;
  template <bool kMin>
  static constexpr int ZeroPoint() {
    return kMin ? 0 : 8;
  }
  // K group c: the low nibbles of line pair c / 2, then its high ones.
  static __m256i Load(const uint8_t* block, int c, int v) {
    const __m256i line = _mm256_load_si256(reinterpret_cast<const __m256i*>(block + c / 2 * 2 * kLine + v * 32));
    return _mm256_and_si256(c % 2 != 0 ? _mm256_srli_epi16(line, 4) : line, _mm256_set1_epi8(0x0f));
  }
};

}  // namespace
}  // namespace slm::kernels
