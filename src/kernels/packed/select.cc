// The one rule by which matmul kernels are chosen: highest tier of the table that the CPU's tier includes.
#include "kernels/packed/table.h"

namespace slm::kernels {

MatMulKernel SelectKernel(KernelTable table, PackedKind kind, Isa isa) {
  const KernelEntry* best = nullptr;
  for (const KernelEntry& e : table) {
    if (e.kind != kind || !Includes(isa, e.isa)) continue;
    if (best == nullptr || best->isa < e.isa) best = &e;
  }
  return best == nullptr ? MatMulKernel{} : best->kernel;
}

}  // namespace slm::kernels
