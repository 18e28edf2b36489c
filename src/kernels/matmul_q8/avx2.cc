// 8-bit matmul for AVX2: the product |w| * (a with the sign of w) by VPMADDUBSW, which cannot saturate that way.
//
// Bound: w = u - 128 is -128..127, so |w| <= 128 is a legal unsigned byte (VPABSB maps -128 to 0x80); a is -127..127, so its
// negation exists, and a pair of products is at most 2 * 128 * 127 = 32512 < 32767. (u * a without the split would reach
// 2 * 255 * 127 = 64770 and saturate.) VPMADDWD widens each result at once: two of them no longer fit 16 bits.
// The zero point is gone with the sign, so nothing is paid by sum(a).
#include "kernels/packed/matmul_ymm.h"

namespace slm::kernels {
namespace {

struct Step {
  struct Weights {
    __m256i value, size;
  };
  static constexpr int kBits = 8;
  template <bool>
  static constexpr int ZeroPoint() {
    return 0;
  }
  static Weights Load(const uint8_t* block, int c, int v) {
    const __m256i w = _mm256_xor_si256(Codes(block + c * 2 * kLine + v * 32), _mm256_set1_epi8(static_cast<char>(0x80)));
    return {w, _mm256_abs_epi8(w)};
  }
  static __m256i Begin(int32_t) { return _mm256_setzero_si256(); }
  static __m256i Add(__m256i sum, Weights w, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(w.size, _mm256_sign_epi8(x, w.value));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static __m256i End(__m256i sum, int32_t) { return sum; }
};

}  // namespace

void MatMulQ8Avx2(const MatMulArgs& args) { MatMulYmm<Step, false>(args); }
void MatMulQ8MinAvx2(const MatMulArgs& args) { MatMulYmm<Step, true>(args); }

}  // namespace slm::kernels
