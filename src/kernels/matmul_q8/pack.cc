// Row-major signed 8-bit codes and their block scales into the packed layout (kernels/packed/contract.h).
#include "kernels/matmul_q8/contract.h"
#include "kernels/packed/pack_blocks.h"

namespace slm::kernels {
namespace {

// A row's 4 bytes of each of the block's eight K groups; the stored byte is code + 128.
template <PackedKind kKind>
void Pack(const PackQ8Args& args) {
  ForEachBlock<kKind>(args, [&](const BlockPlace& at) {
    const CodeWords w = LoadCodes(at, 0);
    for (int g = 0; g < kBlockK / 4; ++g) PutWord(at.panel + ByteOffset(kKind, at.r, at.block * kBlockK + g * 4), w.word[g] ^ 0x80808080u);
    PutScales<kKind>(args, at);
  });
}

}  // namespace

void PackQ8(const PackQ8Args& args) {
  if (args.kind == PackedKind::kQ8Min) Pack<PackedKind::kQ8Min>(args);
  else Pack<PackedKind::kQ8>(args);
}

}  // namespace slm::kernels
