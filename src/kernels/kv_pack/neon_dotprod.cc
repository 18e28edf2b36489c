// f32 to f16 stores with FCVTN, which rounds to nearest even as long as nobody changed FPCR; the tail takes the same instruction.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/kv_pack/contract.h"

namespace slm::kernels {
namespace {

uint16x4_t Halfs(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }

void StoreF16(const float* x, int n, uint16_t* dst) {
  int i = 0;
  for (; i + 8 <= n; i += 8) vst1q_u16(dst + i, vcombine_u16(Halfs(vld1q_f32(x + i)), Halfs(vld1q_f32(x + i + 4))));
  for (; i < n; ++i) vst1_lane_u16(dst + i, Halfs(vld1q_dup_f32(x + i)), 0);
}

}  // namespace

extern const KvPackKernels kKvPackNeonDot;
const KvPackKernels kKvPackNeonDot = {StoreF16, "kv_pack_neon_dotprod"};

}  // namespace slm::kernels
