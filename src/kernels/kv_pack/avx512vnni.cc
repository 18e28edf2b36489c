// f32 to f16 stores with VCVTPS2PH; the rounding mode is in the instruction, not in MXCSR.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/kv_pack/contract.h"

namespace slm::kernels {
namespace {

void StoreF16(const float* x, int n, uint16_t* dst) {
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i h = _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), h);
  }
  if (i < n) {
    const __mmask16 left = static_cast<__mmask16>((1u << (n - i)) - 1);
    const __m256i h = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(left, x + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(dst + i, left, h);
  }
}

}  // namespace

extern const KvPackKernels kKvPackAvx512Vnni;
const KvPackKernels kKvPackAvx512Vnni = {StoreF16, "kv_pack_avx512vnni"};

}  // namespace slm::kernels
