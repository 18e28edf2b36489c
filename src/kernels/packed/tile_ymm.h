// What the tiles in 256-bit registers share: loads, the pin against GCC's trees of adds, and where sums go. Included by ISA files only;
// everything has internal linkage.
#pragma once
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/contract.h"
#include "kernels/packed/tokens.h"

namespace slm::kernels {
namespace {

inline __m256i Broadcast4(const int8_t* p) {
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
inline __m256 Halfs(const uint8_t* p) { return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p))); }
inline __m256i Codes(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// Keeps GCC from turning a chain of integer adds into a tree, whose leaves do not fit 16 registers.
inline void Pin(__m256i& v) { asm("" : "+x"(v)); }

// Sums of n tokens, 32 rows each, into the output.
inline void StoreSums(const MatMulArgs& args, int64_t row, int64_t token, int n, const float* sums) {
  for (int i = 0; i < n; ++i) {
    float* out = args.out + (token + i) * args.out_stride + row;
    for (int g = 0; g < kPanelRows; g += 8) {
      __m256 v = _mm256_load_ps(sums + i * kPanelRows + g);
      if (args.bias != nullptr) v = _mm256_add_ps(v, _mm256_loadu_ps(args.bias + row + g));
      if (args.accumulate) v = _mm256_add_ps(_mm256_loadu_ps(out + g), v);
      _mm256_storeu_ps(out + g, v);
    }
  }
}

}  // namespace
}  // namespace slm::kernels
