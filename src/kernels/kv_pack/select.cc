// Picks the best tier of the kv_pack family that is not above the one asked for.
#include "base/cpu_features.h"
#include "kernels/kv_pack/contract.h"

namespace slm::kernels {

extern const KvPackKernels kKvPackRef;
#if defined(__x86_64__)
extern const KvPackKernels kKvPackAvx2;
extern const KvPackKernels kKvPackAvx512Vnni;
#elif defined(__aarch64__)
extern const KvPackKernels kKvPackNeonDot;
#endif

KvPackKernels KvPack(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Amx:
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni: return kKvPackAvx512Vnni;
    case Isa::kAvxVnni:
    case Isa::kAvx2: return kKvPackAvx2;
#elif defined(__aarch64__)
    case Isa::kNeonI8mm:
    case Isa::kNeonDot: return kKvPackNeonDot;
#endif
    default: return kKvPackRef;
  }
}

}  // namespace slm::kernels
