// f32 rows to bf16 tiles with AVX-512, in the order of kernels/packed/tiles.h. No tile instruction is used here.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/packed/tiles.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {
namespace {

// bf16 in the upper half of each lane: to nearest, ties to even; a NaN becomes the canonical one.
__m512i Rounded(__m512 v) {
  const __m512i x = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return _mm512_mask_mov_epi32(sum, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
}

__m512 LoadSome(const float* x, int64_t n) {
  const uint32_t some = n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1;
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(some), x);
}

void StoreRow(const float* x, int n, int64_t token, uint16_t* tiles) {
  // Word 2 k + 1 of the 64 words of 32 lanes is K k rounded.
  alignas(kLine) static constexpr uint16_t kOrder[32] = {1,  5,  9,  13, 3,  7,  11, 15, 17, 21, 25, 29, 19, 23, 27, 31,
                                                         33, 37, 41, 45, 35, 39, 43, 47, 49, 53, 57, 61, 51, 55, 59, 63};
  const __m512i order = _mm512_load_si512(kOrder);
  const int64_t padded_k = PaddedK(n);
  for (int64_t k = 0; k < padded_k; k += kTileK) {
    const __m512i low = Rounded(LoadSome(x + k, n - k)), high = Rounded(LoadSome(x + k + 16, n - k - 16));
    _mm512_storeu_si512(tiles + TilePosition(token, k, padded_k), _mm512_permutex2var_epi16(low, order, high));
  }
}

}  // namespace

extern const TileKernels kActivationTilesAmx;
const TileKernels kActivationTilesAmx = {StoreRow, "tiles_bf16_f32_amx"};

}  // namespace slm::kernels
