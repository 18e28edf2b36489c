// Ceilings of the machine as loops: reading memory and multiplying 8-bit integers, with nothing else in the way. A share of the
// roofline (Williams, Waterman, Patterson 2009) is a kernel's rate over one of these, measured in the same minute.
#pragma once
#include <stdint.h>

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

struct ProbeKernels {
  // Reads p [bytes] once, bytes a multiple of 512, p aligned to 64. Returns bits of what was read, so that the loads stay.
  int (*read)(const uint8_t* p, int64_t bytes);
  // Multiply-adds of 8-bit integers into 32 bits (AVX2: 16 bits, as the 4-bit kernel does) from registers; does `rounds` rounds and
  // returns the operations done, two a multiply-add. The tile loop needs
  // CpuFeatures::amx_ready and amx_int8.
  double (*multiply)(int64_t rounds);
  const char* name;  // nullptr: this build has no loop for the tier
};
// The loops of exactly this tier; `multiply` is null where the tier has no integer product. Pure. The CPU must have the tier.
ProbeKernels Probe(Isa isa);

}  // namespace slm::kernels
