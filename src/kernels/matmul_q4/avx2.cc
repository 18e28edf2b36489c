// 4-bit matmul for AVX2: VPMADDUBSW on nibbles, eight results added in 16 bits before they are widened.
//
// Bound: one result is a sum of two products of q in 0..15 and a in -128..127, at most 2 * 15 * 128 = 3840 in magnitude; a block
// of 32 K gives a 16-bit lane eight of them, at most 30720 < 32767. So neither VPMADDUBSW nor the adds saturate or wrap, and one
// VPMADDWD per block widens the exact sum.
#include "kernels/matmul_q4/nibbles_ymm.h"
#include "kernels/packed/matmul_ymm.h"

namespace slm::kernels {
namespace {

struct Step : Nibbles {
  static __m256i Begin(int32_t) { return _mm256_setzero_si256(); }
  static __m256i Add(__m256i sum16, __m256i w, __m256i x) { return _mm256_add_epi16(sum16, _mm256_maddubs_epi16(w, x)); }
  static __m256i End(__m256i sum16, int32_t start) {
    return _mm256_add_epi32(_mm256_madd_epi16(sum16, _mm256_set1_epi16(1)), _mm256_set1_epi32(start));
  }
};

}  // namespace

void MatMulQ4Avx2(const MatMulArgs& args) { MatMulYmm<Step, false>(args); }
void MatMulQ4MinAvx2(const MatMulArgs& args) { MatMulYmm<Step, true>(args); }

}  // namespace slm::kernels
