// How far ahead of the two lines in use the matmul kernels fetch weights.
//
// Measured on Zen 4 past the caches (packed weights, GB/s a core): with one or two tokens the core waits for memory; every other
// line into L2 gives 31.5, no prefetch 28 to 31, all lines into L1 only 25. From three tokens on there is work between the misses:
// all lines into L1 gives 19.3, no prefetch 17.0 (4 tokens). Intel's AMX servers need a prefetch at M = 1 (34.5 against 29.3)
// and take L2 as well as L1; PREFETCHNTA costs them two thirds, so it is never used. Lost: letting
// the last tile of a panel fetch the next panel (the distance became a register, the tile of 4 tokens spilled and lost a quarter).
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {

// Always inlined: an ISA object must not offer this function to others.
template <int kTokens>
[[gnu::always_inline]] inline void FetchAhead(const uint8_t* lines) {
  if constexpr (kTokens <= 2) {
    __builtin_prefetch(lines + 2048, 0, 2);
  } else {
    __builtin_prefetch(lines + 3072, 0, 3);
    __builtin_prefetch(lines + 3072 + kLine, 0, 3);
  }
}

// Asks for the line at p in order to write it: what another core has read since must be taken from its cache, which a store would
// wait for. (A plain prefetch on tiers that are built without the instruction.)
[[gnu::always_inline]] inline void FetchToWrite(const void* p) { __builtin_prefetch(p, 1, 3); }

}  // namespace slm::kernels
