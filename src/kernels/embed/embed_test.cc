#include "kernels/embed/contract.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/float16.h"
#include "kernels/packed/matmul_check.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

// The value a code stands for, in double precision from the row-major problem: no packed layout is involved.
double Exact(const check::Problem& p, int64_t row, int64_t j) {
  const int64_t i = row * p.k + j;
  if (!IsQuantized(p.kind)) {
    float f;
    uint16_t h;
    std::memcpy(&f, p.floats.data() + i * (p.kind == PackedKind::kF32 ? 4 : 0), 4);
    std::memcpy(&h, p.floats.data() + i * (p.kind == PackedKind::kF32 ? 0 : 2), 2);
    return p.kind == PackedKind::kF32 ? f : p.kind == PackedKind::kF16 ? HalfToFloat(h) : BFloat16ToFloat(h);
  }
  constexpr int kZero[] = {8, 0, 128, 128, 0, 0, 0, 16, 0, 0, 0, 32};
  const double code = p.codes[i] - kZero[static_cast<int>(p.kind)];
  const int64_t block = row * ((p.k + 31) / 32) + j / 32;
  if (p.sub_scale.empty()) return double{p.scale[block]} * code + (HasMin(p.kind) ? double{p.min[block]} : 0.0);
  const int64_t super = row * ((p.k + 255) / 256) + j / 256;
  const bool two = p.kind == PackedKind::kQ6K;
  const double scale = double{p.scale[super]} * p.sub_scale[two ? block * 2 + j % 32 / 16 : block];
  return scale * code + (two ? 0.0 : double{p.min[super]} * p.sub_min[block]);
}

}  // namespace

TEST(EmbedRow, GivesTheValuesOfEveryKindRoundedOnce) {
  for (int kind = 0; kind < static_cast<int>(PackedKind::kCount); ++kind)
    for (int64_t k : {1, 32, 33, 172, 576}) {
      const check::Problem p = check::MakeProblem(static_cast<PackedKind>(kind), 37, k, 1, check::Fill::kRandom);
      const check::Guarded w(PackedBytes(p.kind, p.n, p.k), check::Touch::kEnd), out(k * 4, check::Touch::kEnd);
      check::PackProblem(p, 0, p.n, w.As<uint8_t>());
      for (int64_t row : {0, 1, 15, 16, 31, 32, 36}) {
        EmbedRow(p.kind, w.As<uint8_t>(), k, row, 1.5f, out.As<float>());
        for (int64_t j = 0; j < k; ++j)
          ASSERT_EQ(out.As<float>()[j], static_cast<float>(Exact(p, row, j)) * 1.5f) << kind << " row " << row << " k " << j;
      }
    }
}

}  // namespace slm::kernels
