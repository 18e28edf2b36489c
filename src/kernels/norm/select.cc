// Picks the best tier of the norm family that is not above the one asked for.
#include "base/cpu_features.h"
#include "kernels/norm/contract.h"

namespace slm::kernels {

extern const NormKernels kNormRef;
#if defined(__x86_64__)
extern const NormKernels kNormAvx2;
extern const NormKernels kNormAvx512Vnni;
#elif defined(__aarch64__)
extern const NormKernels kNormNeonDot;
#endif

NormKernels Norm(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Amx:
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni: return kNormAvx512Vnni;
    case Isa::kAvxVnni:
    case Isa::kAvx2: return kNormAvx2;
#elif defined(__aarch64__)
    case Isa::kNeonI8mm:
    case Isa::kNeonDot: return kNormNeonDot;
#endif
    default: return kNormRef;
  }
}

}  // namespace slm::kernels
