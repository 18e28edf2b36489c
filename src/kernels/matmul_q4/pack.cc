// Row-major 4-bit codes and their block scales into the packed layout (kernels/packed/contract.h).
#include "kernels/matmul_q4/contract.h"
#include "kernels/packed/pack_blocks.h"

namespace slm::kernels {
namespace {

template <PackedKind kKind>
void Pack(const PackQ4Args& args) {
  ForEachBlock<kKind>(args, [&](const BlockPlace& at) {
    PutNibbles<kKind>(LoadCodes(at, ZeroPoint(kKind)), at);
    PutScales<kKind>(args, at);
  });
}

}  // namespace

void PackQ4(const PackQ4Args& args) {
  if (args.kind == PackedKind::kQ4Min) Pack<PackedKind::kQ4Min>(args);
  else Pack<PackedKind::kQ4>(args);
}

}  // namespace slm::kernels
