// 512-bit loops: the widest loads, and VPDPBUSD from registers.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

int Read(const uint8_t* p, int64_t bytes) {
  __m512i any[8];
  for (auto& v : any) v = _mm512_setzero_si512();
  for (int64_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(p + i + 4096 + 64 * j), _MM_HINT_T0);
      any[j] = _mm512_or_si512(any[j], _mm512_load_si512(p + i + 64 * j));
    }
  }
  for (int j = 1; j < 8; ++j) any[0] = _mm512_or_si512(any[0], any[j]);
  return static_cast<int>(_mm512_test_epi32_mask(any[0], any[0]));
}

double Dot(int64_t rounds) {
  __m512i acc[12];
  const __m512i w = _mm512_set1_epi8(1);
  for (auto& v : acc) v = _mm512_setzero_si512();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : acc) asm volatile("vpdpbusd %1, %1, %0" : "+v"(v) : "v"(w));
  }
  return 12.0 * 128 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeAvx512Vnni;
const ProbeKernels kProbeAvx512Vnni = {Read, Dot, "probe_avx512vnni"};

}  // namespace slm::kernels
