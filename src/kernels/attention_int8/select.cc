// Picks the best tier of the attention_int8 family that the one asked for includes.
#include "base/cpu_features.h"
#include "kernels/attention_int8/contract.h"

namespace slm::kernels {

extern const AttentionInt8Kernels kAttentionInt8Ref;
#if defined(__x86_64__)
extern const AttentionInt8Kernels kAttentionInt8Avx2;
extern const AttentionInt8Kernels kAttentionInt8Avx512Vnni;
#endif

AttentionInt8Kernels AttentionInt8(Isa isa) {
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512Vnni)) return kAttentionInt8Avx512Vnni;
  if (Includes(isa, Isa::kAvx2)) return kAttentionInt8Avx2;
#endif
  (void)isa;  // other processors run the law
  return kAttentionInt8Ref;
}

}  // namespace slm::kernels
