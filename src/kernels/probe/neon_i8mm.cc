// SMMLA from registers: a 2 x 8 by 8 x 2 product an instruction. Reading memory is the business of neon_dotprod.cc.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

double MatMul(int64_t rounds) {
  int32x4_t acc[12];
  const int8x16_t w = vdupq_n_s8(1);
  for (auto& v : acc) v = vdupq_n_s32(0);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : acc) asm volatile("smmla %0.4s, %1.16b, %1.16b" : "+w"(v) : "w"(w));
  }
  return 12.0 * 64 * static_cast<double>(rounds);
}

}  // namespace

extern const ProbeKernels kProbeNeonI8mm;
const ProbeKernels kProbeNeonI8mm = {nullptr, MatMul, "probe_neon_i8mm"};

}  // namespace slm::kernels
