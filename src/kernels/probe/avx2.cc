// 256-bit loops. Instructions of the multiply loops are written out: a compiler would fold a product of constants.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

// A byte counts when it reaches a register; four independent chains keep up with any load port. The prefetch runs a page ahead:
// the CPU's own stops at page ends.
int Read(const uint8_t* p, int64_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes; i += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 4096), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p + i + 4160), _MM_HINT_T0);
    a = _mm256_or_si256(a, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i)));
    b = _mm256_or_si256(b, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32)));
    c = _mm256_or_si256(c, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 64)));
    d = _mm256_or_si256(d, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 96)));
  }
  return _mm256_movemask_epi8(_mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d)));
}

double Maddubs(int64_t rounds) {
  __m256i acc[8];
  const __m256i w = _mm256_set1_epi8(1);
  for (auto& v : acc) v = _mm256_setzero_si256();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (auto& v : acc) {
      __m256i t;
      asm volatile("vpmaddubsw %2, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(v), "=&x"(t) : "x"(w));
    }
  }
  return 8.0 * 64 * static_cast<double>(rounds);
}

// AVX-VNNI: the VEX form of VPDPBUSD, which this file's flags do not switch on.
double VexDot(int64_t rounds) {
  __m256i acc[12];
  const __m256i w = _mm256_set1_epi8(1);
  for (auto& v : acc) v = _mm256_setzero_si256();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : acc) asm volatile("%{vex%} vpdpbusd %1, %1, %0" : "+x"(v) : "x"(w));
  }
  return 12.0 * 64 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeAvx2, kProbeAvxVnni;
const ProbeKernels kProbeAvx2 = {Read, Maddubs, "probe_avx2"};
const ProbeKernels kProbeAvxVnni = {Read, VexDot, "probe_avxvnni"};

}  // namespace slm::kernels
