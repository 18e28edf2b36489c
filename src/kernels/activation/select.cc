// Picks the best tier of the activation family that is not above the one asked for.
#include "base/cpu_features.h"
#include "kernels/activation/contract.h"

namespace slm::kernels {

extern const ActivationKernels kActivationRef;
#if defined(__x86_64__)
extern const ActivationKernels kActivationAvx2;
extern const ActivationKernels kActivationAvx512Vnni;
#elif defined(__aarch64__)
extern const ActivationKernels kActivationNeonDot;
#endif

ActivationKernels Activations(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Amx:
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni: return kActivationAvx512Vnni;
    case Isa::kAvxVnni:
    case Isa::kAvx2: return kActivationAvx2;
#elif defined(__aarch64__)
    case Isa::kNeonI8mm:
    case Isa::kNeonDot: return kActivationNeonDot;
#endif
    default: return kActivationRef;
  }
}

}  // namespace slm::kernels
