// Plain C++ loops: what a machine without any known vector tier is measured with.
#include "kernels/probe/contract.h"

namespace slm::kernels {
namespace {

int Read(const uint8_t* p, int64_t bytes) {
  uint64_t any[4] = {};
  for (int64_t i = 0; i < bytes; i += 32)
    for (int j = 0; j < 4; ++j) {
      uint64_t v;
      __builtin_memcpy(&v, p + i + 8 * j, 8);
      any[j] |= v;
    }
  return (any[0] | any[1] | any[2] | any[3]) != 0;
}

}  // namespace

extern const ProbeKernels kProbeRef;
const ProbeKernels kProbeRef = {Read, nullptr, "probe_scalar"};

}  // namespace slm::kernels
