// f32 to f16 stores with VCVTPS2PH; the rounding mode is in the instruction, not in MXCSR.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/kv_pack/contract.h"

namespace slm::kernels {
namespace {

void StoreF16(const float* x, int n, uint16_t* dst) {
  int i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) {
    const __m128i h = _mm_cvtps_ph(_mm_load_ss(x + i), _MM_FROUND_TO_NEAREST_INT);
    dst[i] = static_cast<uint16_t>(_mm_extract_epi16(h, 0));
  }
}

}  // namespace

extern const KvPackKernels kKvPackAvx2;
const KvPackKernels kKvPackAvx2 = {StoreF16, "kv_pack_avx2"};

}  // namespace slm::kernels
