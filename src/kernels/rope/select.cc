// Picks the best tier of the rope family that is not above the one asked for.
#include "base/cpu_features.h"
#include "kernels/rope/contract.h"

namespace slm::kernels {

extern const RopeKernels kRopeRef;
#if defined(__x86_64__)
extern const RopeKernels kRopeAvx2;
extern const RopeKernels kRopeAvx512Vnni;
#elif defined(__aarch64__)
extern const RopeKernels kRopeNeonDot;
#endif

RopeKernels Rope(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Amx:
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni: return kRopeAvx512Vnni;
    case Isa::kAvxVnni:
    case Isa::kAvx2: return kRopeAvx2;
#elif defined(__aarch64__)
    case Isa::kNeonI8mm:
    case Isa::kNeonDot: return kRopeNeonDot;
#endif
    default: return kRopeRef;
  }
}

}  // namespace slm::kernels
