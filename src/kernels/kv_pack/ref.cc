// Scalar law of the KV store: base/float16.h, value by value.
#include "base/float16.h"
#include "kernels/kv_pack/contract.h"

namespace slm::kernels {
namespace {

void StoreF16(const float* x, int n, uint16_t* dst) {
  for (int i = 0; i < n; ++i) dst[i] = FloatToHalf(x[i]);
}

}  // namespace

extern const KvPackKernels kKvPackRef;
const KvPackKernels kKvPackRef = {StoreF16, "kv_pack_scalar"};

}  // namespace slm::kernels
