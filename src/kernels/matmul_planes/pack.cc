// Row-major codes of 4 to 6 bits, their scales and the factors of super-blocks into the packed layout (kernels/packed/contract.h).
#include <cstring>

#include "kernels/matmul_planes/contract.h"
#include "kernels/packed/pack_blocks.h"
#include "kernels/packed/value.h"

namespace slm::kernels {
namespace {

// The bits above the nibble into the row's 4 bytes of the lines of higher bits.
template <PackedKind kKind>
void PutHighBits(const CodeWords& w, const BlockPlace& at) {
  if (HighBits(kKind) == 0) return;
  const uint32_t mask = HighBits(kKind) == 1 ? 0x01010101u : 0x03030303u;
  for (int g = 0; g < kBlockK / 4; ++g) {  // the first group of a word writes it, the others add to it
    const int64_t k = at.block * kBlockK + g * 4;
    uint8_t* to = at.panel + HighOffset(kKind, at.r, k);
    const int shift = HighShift(kKind, k);
    uint32_t word = 0;
    if (shift != 0) std::memcpy(&word, to, 4);
    PutWord(to, word | (w.word[g] >> 4 & mask) << shift);
  }
}

// Integer scales of the block; of the first of a super-block its factors, too.
template <PackedKind kKind>
void PutSuperScales(const PackPlanesArgs& a, const BlockPlace& at) {
  constexpr int n = ScalesOf(kKind);
  for (int half = 0; half < n; ++half) {
    const int8_t scale = at.is_real() ? a.sub_scale[at.index * n + half] : int8_t{0};
    at.panel[SubScaleOffset(kKind, at.r, at.block, half)] = static_cast<uint8_t>(scale);
  }
  if (HasMin(kKind)) at.panel[SubMinOffset(kKind, at.r, at.block)] = at.is_real() ? a.sub_min[at.index] : uint8_t{0};
  if (at.block % kSuperBlocks != 0) return;
  const int64_t super = at.row * SuperBlocks(a.k) + at.block / kSuperBlocks;
  PutHalf(at.panel + FactorOffset(kKind, at.r, at.block), at.is_real() ? a.scale[super] : 0.0f);
  if (HasMin(kKind)) PutHalf(at.panel + MinFactorOffset(kKind, at.r, at.block), at.is_real() ? a.min[super] : 0.0f);
}

template <PackedKind kKind>
void Pack(const PackPlanesArgs& args) {
  ForEachBlock<kKind>(args, [&](const BlockPlace& at) {
    const CodeWords w = LoadCodes(at, ZeroPoint(kKind));
    PutNibbles<kKind>(w, at);
    PutHighBits<kKind>(w, at);
    if constexpr (LinesOf(kKind).super == 0) PutScales<kKind>(args, at);
    else PutSuperScales<kKind>(args, at);
  });
}

}  // namespace

void PackPlanes(const PackPlanesArgs& args) {
  switch (args.kind) {
    case PackedKind::kQ5: return Pack<PackedKind::kQ5>(args);
    case PackedKind::kQ5Min: return Pack<PackedKind::kQ5Min>(args);
    case PackedKind::kQ4K: return Pack<PackedKind::kQ4K>(args);
    case PackedKind::kQ5K: return Pack<PackedKind::kQ5K>(args);
    default: return Pack<PackedKind::kQ6K>(args);
  }
}

}  // namespace slm::kernels
