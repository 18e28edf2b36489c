// The ISA tiers that a test of kernels walks, and the one of a test that runs once for each.
#pragma once
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/cpu_features.h"

namespace slm {

// SLM_FORCE_ISA chooses the tier, as for users.
inline Isa TestIsa() {
  const char* forced = std::getenv("SLM_FORCE_ISA");
  return ChooseIsa(DetectCpu(), forced ? forced : "").Take();
}

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
