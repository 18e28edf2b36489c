// A family's list of matmul kernels as data: what select.cc picks from, and what tests and benches walk.
//
// Why not registration: the list is one table.inc per family, expanded here and there, so nothing runs before main.
#pragma once
#include <stdint.h>

#include "base/cpu_features.h"
#include "kernels/packed/contract.h"

namespace slm::kernels {

struct KernelEntry {
  PackedKind kind;
  Isa isa;
  MatMulKernel kernel;
};
struct KernelTable {
  const KernelEntry* begin_;
  const KernelEntry* end_;
  const KernelEntry* begin() const { return begin_; }
  const KernelEntry* end() const { return end_; }
};

// Every kernel compiled into this build. Static storage, pure.
KernelTable MatMulQ4Kernels();
KernelTable MatMulQ8Kernels();
KernelTable MatMulPlanesKernels();
KernelTable MatMulFloatKernels();
KernelTable MatMulQ4WideKernels();
KernelTable MatMulQ8WideKernels();
KernelTable MatMulPlanesWideKernels();

// Kernel of the highest tier that `isa` includes; {nullptr, nullptr} when the table has none of that kind.
MatMulKernel SelectKernel(KernelTable table, PackedKind kind, Isa isa);

}  // namespace slm::kernels
