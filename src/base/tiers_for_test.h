// The ISA tiers that a test of kernels walks.
#pragma once
#include <cstring>
#include <vector>

#include "base/cpu_features.h"

namespace slm {

// Tiers with kernels in this build that this machine can run, rising; the scalar one is always first.
inline std::vector<Isa> RunnableTiers() {
  std::vector<Isa> tiers;
  const CpuFeatures cpu = DetectCpu();
  for (const Isa isa : TiersOfThisBuild())
    if (Supports(cpu, isa)) tiers.push_back(isa);
  return tiers;
}

// Those of them for which `select` (a family's door) gives kernels of their own.
template <class Kernels>
std::vector<Isa> TiersOf(Kernels (*select)(Isa)) {
  std::vector<Isa> tiers;
  for (const Isa isa : RunnableTiers())
    if (tiers.empty() || std::strcmp(select(isa).name, select(tiers.back()).name) != 0) tiers.push_back(isa);
  return tiers;
}

}  // namespace slm
