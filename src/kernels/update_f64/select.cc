// Picks the best tier of the f64 update that is not above the one asked for.
#include "base/cpu_features.h"
#include "kernels/update_f64/contract.h"

namespace slm::kernels {

extern const UpdateF64Kernel kUpdateF64Ref;
#if defined(__x86_64__)
extern const UpdateF64Kernel kUpdateF64Avx2;
#elif defined(__aarch64__)
extern const UpdateF64Kernel kUpdateF64NeonDot;
#endif

UpdateF64Kernel UpdateF64(Isa isa) {
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx2)) return kUpdateF64Avx2;
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeonDot)) return kUpdateF64NeonDot;
#endif
  return kUpdateF64Ref;
}

}  // namespace slm::kernels
