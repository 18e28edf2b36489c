// Picks the best tier of the attention family that is not above the one asked for.
#include "base/cpu_features.h"
#include "kernels/attention/contract.h"

namespace slm::kernels {

extern const AttentionKernels kAttentionRef;
#if defined(__x86_64__)
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512Vnni;
extern const AttentionKernels kAttentionAvx512Bf16;
#elif defined(__aarch64__)
extern const AttentionKernels kAttentionNeonDot;
#endif

AttentionKernels Attention(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Amx:
    case Isa::kAvx512Bf16: return kAttentionAvx512Bf16;
    case Isa::kAvx512Vnni: return kAttentionAvx512Vnni;
    case Isa::kAvxVnni:
    case Isa::kAvx2: return kAttentionAvx2;
#elif defined(__aarch64__)
    case Isa::kNeonI8mm:
    case Isa::kNeonDot: return kAttentionNeonDot;
#endif
    default: return kAttentionRef;
  }
}

}  // namespace slm::kernels
