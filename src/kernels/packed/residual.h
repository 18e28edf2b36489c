// The residual blocks of a block of tokens, ordered by where their weights lie, so that a panel is walked once for all tokens:
// a block's weight lines are unpacked into registers once and serve every token that has a residual there.
//
// Why a walk of its own and not a second dot inside the tile: the tile's registers are full (it would spill), and its branch per
// block and token would be mispredicted; apart from it, blocks without residual cost nothing. One token alone (decode) waits for
// memory, so AVX-512 does take its residuals in passing.
#pragma once
#include <stdint.h>

#include "kernels/packed/contract.h"

namespace slm::kernels {

struct ResidualEntry {
  const int8_t* q;
  float scale;
  int32_t start;  // the zero point paid in advance: -zero point * sum
  float offset;   // scale * sum, the factor of the block's minimum
  int32_t token;  // of this block of tokens
};
static_assert(sizeof(ResidualEntry) + kBlockK == kResidualEntryBytes);

// Entries of block b: entries[begin[b]] to entries[begin[b + 1]], one a token at most.
struct ResidualList {
  int32_t* begin;  // [n_blocks + 2]
  ResidualEntry* entries;
};

// Everything here is always inlined: an ISA object must not offer a function to others.
[[gnu::always_inline]] inline ResidualEntry EntryOf(const ResidualBlock& r, int zero_point, int32_t token) {
  return {r.q, r.scale, -zero_point * r.sum, r.scale * static_cast<float>(r.sum), token};
}

// Sum of the first half of a block: kinds with a scale for each half pay the zero point by halves.
[[gnu::always_inline]] inline int32_t HalfSum(const int8_t* q) {
  int32_t sum = 0;
  for (int i = 0; i < kBlockK / 2; ++i) sum += q[i];
  return sum;
}

// The residual blocks of one token.
[[gnu::always_inline]] inline const ResidualBlock* ResidualsBegin(const MatMulArgs& args, int64_t token) {
  return args.residual_count != nullptr ? args.residual + token * (args.k / kBlockK) : nullptr;
}
[[gnu::always_inline]] inline const ResidualBlock* ResidualsEnd(const MatMulArgs& args, int64_t token) {
  return args.residual_count != nullptr ? ResidualsBegin(args, token) + args.residual_count[token] : nullptr;
}

// Lists the residual blocks of tokens [first, first + n), a counting sort into `scratch` (at 64-byte alignment). Their codes are copied
// into the same order behind the entries, so that walking them is a stream.
[[gnu::always_inline]] inline ResidualList ListResiduals(const MatMulArgs& args, int zero_point, int64_t first, int n, uint8_t* scratch) {
  const int64_t n_blocks = args.k / kBlockK;
  const ResidualList list{reinterpret_cast<int32_t*>(scratch), reinterpret_cast<ResidualEntry*>(scratch + (n_blocks + kLine) / 16 * kLine)};
  int8_t* codes = reinterpret_cast<int8_t*>(list.entries + n * n_blocks);
  for (int64_t b = 0; b < n_blocks + 2; ++b) list.begin[b] = 0;
  for (int64_t t = first; t < first + n; ++t)
    for (const ResidualBlock *r = ResidualsBegin(args, t), *end = ResidualsEnd(args, t); r != end; ++r) ++list.begin[r->block + 2];
  for (int64_t b = 2; b < n_blocks + 2; ++b) list.begin[b] += list.begin[b - 1];
  for (int64_t t = first; t < first + n; ++t)  // begin[b + 1] moves from the begin of block b to its end
    for (const ResidualBlock *r = ResidualsBegin(args, t), *end = ResidualsEnd(args, t); r != end; ++r) {
      const int64_t at = list.begin[r->block + 1]++;
      list.entries[at] = EntryOf(*r, zero_point, static_cast<int32_t>(t - first));
      list.entries[at].q = codes + at * kBlockK;
      __builtin_memcpy(codes + at * kBlockK, r->q, kBlockK);
    }
  return list;
}

}  // namespace slm::kernels
