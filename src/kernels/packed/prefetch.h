// How far ahead of the two lines in use the matmul kernels fetch weights.
//
// Measured on Zen 4 past the caches (packed weights, GB/s a core): with one or two tokens the core waits for memory; every other
// line into L2 gives 31.5, no prefetch 28 to 31, all lines into L1 only 25. From three tokens on there is work between the misses:
// all lines into L1 gives 19.3, no prefetch 17.0 (4 tokens). Intel's AMX servers need a prefetch at M = 1 (34.5 against 29.3)
// and take L2 as well as L1; PREFETCHNTA costs them two thirds, so it is never used.
//
// Where three tiles of tokens or more share a panel, they fetch the next panel a few lines a block instead: the first to touch a panel, the
// walk over residual blocks, cannot fetch ahead for itself (32 tokens, 4-bit weights past the caches: 534 to 553 GOP/s against 502).
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

enum class Fetch { kThisPanel, kNextPanel };
inline constexpr int kNextLines = 4;  // of the next panel, fetched beside each block of a tile

// The part of the next panel that is still to be fetched; empty after the last panel.
struct NextPanel {
  const uint8_t *at, *end;
  const uint8_t* resident;  // what costs nothing to fetch
  // Where a tile over n_blocks fetches.
  [[gnu::always_inline]] const uint8_t* Take(int64_t n_blocks) {
    if (at >= end) return resident;
    const uint8_t* part = at;
    at += n_blocks * kNextLines * kLine;
    return part;
  }
};
[[gnu::always_inline]] inline NextPanel NextPanelOf(const MatMulArgs& args, int64_t panel) {
  const uint8_t* p = args.w + (panel + 1) * args.panel_bytes;
  return {p, panel + 1 < args.panel_end ? p + args.panel_bytes : p, p - args.panel_bytes};
}
[[gnu::always_inline]] inline void FetchNext(const uint8_t* line) { __builtin_prefetch(line, 0, 2); }

// Asks for the line at p in order to write it: what another core has read since must be taken from its cache, which a store would
// wait for. (A plain prefetch on tiers that are built without the instruction.)
[[gnu::always_inline]] inline void FetchToWrite(const void* p) { __builtin_prefetch(p, 1, 3); }

}  // namespace slm::kernels
