// 128-bit loops: loads of pairs, and SDOT from registers.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

int Read(const uint8_t* p, int64_t bytes) {
  uint8x16_t any[4];
  for (auto& v : any) v = vdupq_n_u8(0);
  for (int64_t i = 0; i < bytes; i += 64)
    for (int j = 0; j < 4; ++j) any[j] = vorrq_u8(any[j], vld1q_u8(p + i + 16 * j));
  return vmaxvq_u8(vorrq_u8(vorrq_u8(any[0], any[1]), vorrq_u8(any[2], any[3])));
}

double Dot(int64_t rounds) {
  int32x4_t acc[12];
  const int8x16_t w = vdupq_n_s8(1);
  for (auto& v : acc) v = vdupq_n_s32(0);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : acc) asm volatile("sdot %0.4s, %1.16b, %1.16b" : "+w"(v) : "w"(w));
  }
  return 12.0 * 32 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeNeonDot;
const ProbeKernels kProbeNeonDot = {Read, Dot, "probe_neon_dotprod"};

}  // namespace slm::kernels
