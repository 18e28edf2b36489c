// Turns table.inc into declarations and the choice of the highest tier that the CPU's tier includes.
#include "kernels/packed/table.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {

#if defined(__x86_64__)
#define SLM_KERNEL_X86(isa, table) SLM_KERNEL(isa, table)
#else
#define SLM_KERNEL_X86(isa, table)
#endif
#if defined(__aarch64__)
#define SLM_KERNEL_ARM(isa, table) SLM_KERNEL(isa, table)
#else
#define SLM_KERNEL_ARM(isa, table)
#endif

#define SLM_KERNEL(isa, table) extern const QuantizeKernels table;
#include "kernels/quantize/table.inc"
#undef SLM_KERNEL

#if defined(__x86_64__)
extern const TileKernels kActivationTilesAmx;
#endif

TileKernels ActivationTiles([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512Amx)) return kActivationTilesAmx;
#endif
  return {};
}

// The lines of table.inc rise, so the last one that fits is the best.
QuantizeKernels Quantize(Isa isa) {
  const QuantizeKernels* best = nullptr;
#define SLM_KERNEL(tier, table) \
  if (Includes(isa, Isa::tier)) best = &table;
#include "kernels/quantize/table.inc"
#undef SLM_KERNEL
  return *best;
}

}  // namespace slm::kernels
