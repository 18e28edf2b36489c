// VPDPBUSD in 256 bits as the multiplying half of a step (kernels/packed/matmul_ymm.h): 4 products added to an int32, exactly.
//
// The instruction exists twice, for CPUs that have only one of them: VEX-encoded (AVX-VNNI) and EVEX-encoded (AVX-512 VNNI + VL).
// Kernels use the first; tests compile the same bodies with the second as well, to prove them on CPUs without AVX-VNNI.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace slm::kernels {
namespace {

template <class Weights>
struct Dpbusd : Weights {
  static __m256i Begin(int32_t start) { return _mm256_set1_epi32(start); }
#if defined(__AVXVNNI__)
  static __m256i Add(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#else
  static __m256i Add(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_epi32(sum, w, x); }
#endif
  static __m256i End(__m256i sum, int32_t) { return sum; }
};

}  // namespace
}  // namespace slm::kernels
