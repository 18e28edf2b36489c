// The loops of a tier.
#include "base/cpu_features.h"
#include "kernels/probe/contract.h"

namespace slm::kernels {

extern const ProbeKernels kProbeRef;
#if defined(__x86_64__)
extern const ProbeKernels kProbeAvx2, kProbeAvxVnni, kProbeAvx512Vnni, kProbeAmx;
#elif defined(__aarch64__)
extern const ProbeKernels kProbeNeonDot, kProbeNeonI8mm;
#endif

ProbeKernels Probe(Isa isa) {
  switch (isa) {
    case Isa::kScalar: return kProbeRef;
#if defined(__x86_64__)
    case Isa::kAvx2: return kProbeAvx2;
    case Isa::kAvxVnni: return kProbeAvxVnni;
    case Isa::kAvx512Vnni: return kProbeAvx512Vnni;
    case Isa::kAvx512Amx: return kProbeAmx;
#elif defined(__aarch64__)
    case Isa::kNeonDot: return kProbeNeonDot;
    case Isa::kNeonI8mm: return kProbeNeonI8mm;
#endif
    default: return {nullptr, nullptr, nullptr};
  }
}

}  // namespace slm::kernels
