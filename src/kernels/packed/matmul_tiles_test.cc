// The wide products (bf16 tiles) of tier amx, twice, wherever AVX-512 is: over tiles in C++, and the machine code of the tier itself, whose
// tile instructions the CPU carries out or a trap does (amx_trap_for_test.h). Exact data must give exact integers whatever the order of
// sums; random data stay within the rounding of bf16 on both sides.
#include "kernels/packed/tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/matmul_planes/contract.h"
#include "kernels/matmul_q4/contract.h"
#include "kernels/matmul_q8/contract.h"
#include "kernels/packed/matmul_check.h"
#include "kernels/packed/position.h"
#include "kernels/quantize/contract.h"
#if defined(__x86_64__)
#include "kernels/packed/amx_trap_for_test.h"
#endif

namespace slm::kernels {

#if defined(__x86_64__)
void MatMulQ4AmxEmulated(const MatMulArgs& args);  // packed/amx_emulated_test.cc
void MatMulQ4MinAmxEmulated(const MatMulArgs& args);
void MatMulQ8AmxEmulated(const MatMulArgs& args);
void MatMulQ8MinAmxEmulated(const MatMulArgs& args);
void MatMulQ5AmxEmulated(const MatMulArgs& args);
void MatMulQ5MinAmxEmulated(const MatMulArgs& args);
void MatMulQ4KAmxEmulated(const MatMulArgs& args);
void MatMulQ5KAmxEmulated(const MatMulArgs& args);
void MatMulQ6KAmxEmulated(const MatMulArgs& args);
void TileConfigSeenByAssembly(uint8_t (&bytes)[64]);

namespace {

using check::Guarded;
using check::Problem;
using check::Touch;

bool HasAvx512() { return Includes(BestIsa(DetectCpu()), Isa::kAvx512Vnni); }

bool NeedsTrap() { return !Includes(BestIsa(DetectCpu()), Isa::kAvx512Amx); }

// The emulated kernels, and those of the tier itself.
std::vector<KernelEntry> WideKernels() {
  if (!HasAvx512()) return {};
  std::vector<KernelEntry> all = {{PackedKind::kQ4, Isa::kAvx512Vnni, {MatMulQ4AmxEmulated, "matmul_f32_bf16_q4_emulated"}},
                                  {PackedKind::kQ4Min, Isa::kAvx512Vnni, {MatMulQ4MinAmxEmulated, "matmul_f32_bf16_q4min_emulated"}},
                                  {PackedKind::kQ8, Isa::kAvx512Vnni, {MatMulQ8AmxEmulated, "matmul_f32_bf16_q8_emulated"}},
                                  {PackedKind::kQ8Min, Isa::kAvx512Vnni, {MatMulQ8MinAmxEmulated, "matmul_f32_bf16_q8min_emulated"}},
                                  {PackedKind::kQ5, Isa::kAvx512Vnni, {MatMulQ5AmxEmulated, "matmul_f32_bf16_q5_emulated"}},
                                  {PackedKind::kQ5Min, Isa::kAvx512Vnni, {MatMulQ5MinAmxEmulated, "matmul_f32_bf16_q5min_emulated"}},
                                  {PackedKind::kQ4K, Isa::kAvx512Vnni, {MatMulQ4KAmxEmulated, "matmul_f32_bf16_q4k_emulated"}},
                                  {PackedKind::kQ5K, Isa::kAvx512Vnni, {MatMulQ5KAmxEmulated, "matmul_f32_bf16_q5k_emulated"}},
                                  {PackedKind::kQ6K, Isa::kAvx512Vnni, {MatMulQ6KAmxEmulated, "matmul_f32_bf16_q6k_emulated"}}};
  for (const KernelTable& table : {MatMulQ4WideKernels(), MatMulQ8WideKernels(), MatMulPlanesWideKernels()})
    for (const KernelEntry& e : table) all.push_back(e);
  return all;
}

double Weight(const Problem& p, int64_t row, int64_t k) {
  const int64_t n_blocks = (p.k + kBlockK - 1) / kBlockK, block = row * n_blocks + k / kBlockK;
  const int code = p.codes[static_cast<size_t>(row * p.k + k)] - ZeroPoint(p.kind);
  if (LinesOf(p.kind).super == 0)
    return static_cast<double>(p.scale[static_cast<size_t>(block)]) * code + (HasMin(p.kind) ? p.min[static_cast<size_t>(block)] : 0.0f);
  const size_t super = static_cast<size_t>(row * SuperBlocks(p.k) + k / (kSuperBlocks * kBlockK));
  const int64_t sub = p.kind == PackedKind::kQ6K ? block * 2 + k % kBlockK / 16 : block;
  return static_cast<double>(p.scale[super]) * p.sub_scale[static_cast<size_t>(sub)] * code +
         (HasMin(p.kind) ? static_cast<double>(p.min[super]) * p.sub_min[static_cast<size_t>(block)] : 0.0);
}

// Weights that are small integers times a power of two, activations that are small integers: every partial sum is exact in f32.
Problem ExactProblem(PackedKind kind, int64_t n, int64_t k, int m) {
  Problem p = check::MakeProblem(kind, n, k, m, check::Fill::kRandom);
  for (uint32_t i = 0; i < p.scale.size(); ++i) {
    p.scale[i] = Mix(11, i) % 2 != 0 ? 0.0625f : 0.03125f;
    p.min[i] = LinesOf(kind).super > 0 ? -p.scale[i] : -p.scale[i] * static_cast<float>(Mix(12, i) % 129);
  }
  for (uint32_t i = 0; i < p.sub_scale.size(); ++i) p.sub_scale[i] = static_cast<int8_t>(1 + Mix(17, i) % 2);
  for (uint32_t i = 0; i < p.sub_min.size(); ++i) p.sub_min[i] = static_cast<uint8_t>(Mix(18, i) % 129);
  p.x.resize(static_cast<size_t>(m * k));
  for (uint32_t i = 0; i < p.x.size(); ++i) p.x[i] = static_cast<float>(static_cast<int>(Mix(13, i) % 31) - 15);
  return p;
}
// Scales and activations of any size.
Problem RandomProblem(PackedKind kind, int64_t n, int64_t k, int m) {
  Problem p = check::MakeProblem(kind, n, k, m, check::Fill::kRandom);
  p.x.resize(static_cast<size_t>(m * k));
  for (uint32_t i = 0; i < p.x.size(); ++i)
    p.x[i] = static_cast<float>(static_cast<int>(Mix(14, i) % 20001) - 10000) / (Mix(15, i) % 50 == 0 ? 16.0f : 1024.0f);
  return p;
}

struct Options {
  Touch touch = Touch::kEnd;
  bool bias = false, accumulate = false;
  std::vector<int> panel_cuts = {};
};
float BiasOf(int64_t row) { return static_cast<float>(row % 23) - 11; }
float OutBefore(int64_t i) { return static_cast<float>(i % 7) - 3; }

// The packed values of a problem are changed by `spoil` before the product.
template <class Spoil>
std::vector<float> Product(MatMulKernel kernel, const Problem& p, const Options& o, const Spoil& spoil) {
  const int64_t kp = PaddedK(p.k), np = PaddedRows(p.n);
  Guarded w(static_cast<size_t>(PackedBytes(p.kind, p.n, p.k)), o.touch), out(static_cast<size_t>(p.m * np * 4), o.touch),
      scratch(static_cast<size_t>(ScratchBytes(p.kind, p.k)), o.touch), bias(static_cast<size_t>(np * 4), o.touch),
      tiles(static_cast<size_t>(TiledValues(p.m, kp) * 2), o.touch);
  check::PackProblem(p, 0, p.n, w.As<uint8_t>());
  spoil(w.As<uint8_t>());
  w.Freeze();
  std::memset(tiles.As<uint8_t>(), 0x7f, static_cast<size_t>(TiledValues(p.m, kp) * 2));  // tokens that do not exist
  for (int t = 0; t < p.m; ++t)
    ActivationTiles(Isa::kAvx512Amx).store_row(p.x.data() + t * p.k, static_cast<int>(p.k), t, tiles.As<uint16_t>());
  tiles.Freeze();
  for (int64_t i = 0; i < np; ++i) bias.As<float>()[i] = i < p.n ? BiasOf(i) : 0;
  for (int64_t i = 0; i < p.m * np; ++i) out.As<float>()[i] = o.accumulate ? OutBefore(i) : -1e30f;
  MatMulArgs args;
  args.w = w.As<uint8_t>();
  args.panel_bytes = PanelBytes(p.kind, p.k);
  args.k = static_cast<int>(kp);
  args.m = p.m;
  args.tiles = tiles.As<uint16_t>();
  args.out = out.As<float>();
  args.out_stride = np;
  args.bias = o.bias ? bias.As<float>() : nullptr;
  args.accumulate = o.accumulate;
  args.scratch = scratch.As<uint8_t>();
  std::vector<int> borders = {0};
  borders.insert(borders.end(), o.panel_cuts.begin(), o.panel_cuts.end());
  borders.push_back(static_cast<int>(np / kPanelRows));
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    args.panel_begin = borders[i];
    args.panel_end = borders[i + 1];
    if (NeedsTrap() && std::string(kernel.name).ends_with("_amx")) {
      const check::AmxTrap trap;
      kernel.fn(args);
      EXPECT_FALSE(check::AmxTrap::configured()) << kernel.name << " does not release its tiles";
    } else {
      kernel.fn(args);
    }
  }
  return {out.As<float>(), out.As<float>() + p.m * np};
}
std::vector<float> Product(MatMulKernel kernel, const Problem& p, const Options& o) {
  return Product(kernel, p, o, [](uint8_t*) {});
}

void ExpectExact(const KernelEntry& e, int64_t n, int64_t k, int m, const Options& o) {
  const Problem p = ExactProblem(e.kind, n, k, m);
  const int64_t np = PaddedRows(n);
  const std::vector<float> got = Product(e.kernel, p, o);
  for (int t = 0; t < m; ++t)
    for (int64_t i = 0; i < np; ++i) {
      double want = o.accumulate ? OutBefore(t * np + i) : 0;
      if (i < n && o.bias) want += BiasOf(i);
      for (int64_t j = 0; i < n && j < k; ++j) want += Weight(p, i, j) * p.x[static_cast<size_t>(t * k + j)];
      ASSERT_EQ(got[static_cast<size_t>(t * np + i)], want)
          << e.kernel.name << " n " << n << " k " << k << " m " << m << " token " << t << " row " << i;
    }
}

TEST(MatMulTiles, ExactDataGiveExactSums) {
  for (const KernelEntry& e : WideKernels()) {
    for (int m = 1; m <= 70; ++m) ExpectExact(e, 33, 96, m, {});
    for (int64_t k : {1, 31, 64, 100, 172, 576, 640, 896, 960, 1152}) ExpectExact(e, 49, k, 19, {});
    for (int64_t n : {1, 31, 32, 33, 49, 97})
      for (Touch touch : {Touch::kEnd, Touch::kStart}) ExpectExact(e, n, 640, 35, {.touch = touch, .bias = true});
    for (bool bias : {false, true})
      for (int m : {16, 21, 40}) ExpectExact(e, 40, 1152, m, {.bias = bias, .accumulate = true});
    ExpectExact(e, 161, 128, 37, {.panel_cuts = {1, 3, 3, 4}});
    ExpectExact(e, 32, 4160, 150, {.bias = true});  // more than one block of tokens
  }
}

// Bound: bf16 rounds weights and activations by at most 2^-8 each, relative; then K sums in f32.
TEST(MatMulTiles, RandomDataStayWithinTheRoundingOfBf16) {
  for (const KernelEntry& e : WideKernels())
    for (int64_t k : {172, 576, 1152}) {
      const Problem p = RandomProblem(e.kind, 40, k, 20);
      const int64_t np = PaddedRows(p.n);
      const std::vector<float> got = Product(e.kernel, p, {});
      double error = 0, norm = 0;
      for (int t = 0; t < p.m; ++t)
        for (int64_t i = 0; i < p.n; ++i) {
          double exact = 0, size = 0;
          for (int64_t j = 0; j < k; ++j) {
            const double product = Weight(p, i, j) * p.x[static_cast<size_t>(t * k + j)];
            exact += product;
            size += std::fabs(product);
          }
          const double d = got[static_cast<size_t>(t * np + i)] - exact;
          ASSERT_LE(std::fabs(d), size * (0x1.01p-7 + static_cast<double>(k) * 0x1p-24)) << e.kernel.name << " token " << t << " row " << i;
          error += d * d;
          norm += exact * exact;
        }
      EXPECT_LT(std::sqrt(error / norm), 0.004) << e.kernel.name << ": two independent roundings of 2^-9 at most";
    }
}

TEST(MatMulTiles, ResultsDependOnNeitherTheSplitNorTheCompany) {
  for (const KernelEntry& e : WideKernels()) {
    const Problem p = RandomProblem(e.kind, 161, 640, 45);
    const std::vector<float> whole = Product(e.kernel, p, {});
    EXPECT_EQ(whole, Product(e.kernel, p, {.panel_cuts = {2, 3}})) << e.kernel.name;
    Problem fewer = p;
    fewer.m = 18;
    const std::vector<float> first = Product(e.kernel, fewer, {});
    EXPECT_EQ(first, std::vector<float>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(first.size()))) << e.kernel.name;
  }
}

TEST(MatMulTiles, NanReachesTheOutput) {
  for (const KernelEntry& e : WideKernels()) {
    const auto scale = [&](int row) { return LinesOf(e.kind).super > 0 ? FactorOffset(e.kind, row, 1) : ScaleOffset(e.kind, row, 1); };
    Problem p = RandomProblem(e.kind, 32, 128, 17);
    p.x[3 * 128 + 70] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = Product(e.kernel, p, {}, [&](uint8_t* w) {  // the NaN with all bits set would round up to -0
      std::memset(w + scale(5), 0xff, 2);
      w[scale(6)] = 0xff;
      w[scale(6) + 1] = 0x7f;
    });
    for (int t = 0; t < 17; ++t)
      for (int i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(out[static_cast<size_t>(t * 32 + i)]), t == 3 || i == 5 || i == 6) << t << " " << i;
  }
}

TEST(MatMulTiles, AreChosenByTierAmxOnly) {
  for (int i = 0; i < static_cast<int>(PackedKind::kCount); ++i) {
    const PackedKind kind = static_cast<PackedKind>(i);
    if (!IsQuantized(kind)) continue;  // a quantized kind without a wide kernel would cost every model that has it the tier
    const auto wide = InPlanes(kind) ? MatMulPlanesWide : kind <= PackedKind::kQ4Min ? MatMulQ4Wide : MatMulQ8Wide;
    for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kNeonI8mm}) EXPECT_EQ(wide(kind, isa).fn, nullptr);
    ASSERT_NE(wide(kind, Isa::kAvx512Amx).fn, nullptr);
    EXPECT_TRUE(std::string(wide(kind, Isa::kAvx512Amx).name).ends_with("_amx"));
  }
  EXPECT_EQ(ActivationTiles(Isa::kAvx512Vnni).store_row, nullptr);
  EXPECT_NE(ActivationTiles(Isa::kAvx512Amx).store_row, nullptr);
}

// Without this, a tier that quietly ran something else would pass.
TEST(MatMulTiles, TierAmxUsesTileInstructions) {
  if (!HasAvx512() || !NeedsTrap()) GTEST_SKIP() << "tile instructions are not trapped here";
  const int64_t before = check::AmxTrap::n_products();
  Product(MatMulQ4Wide(PackedKind::kQ4, Isa::kAvx512Amx), ExactProblem(PackedKind::kQ4, 32, 128, 32), {});
  EXPECT_EQ(check::AmxTrap::n_products() - before, 4 * 4) << "4 steps of 32 K times 2 x 2 tiles";
}

// The trap of GCC 12: a configuration in a local struct whose stores are dropped because the statement does not say it reads them.
TEST(MatMulTiles, TheWholeTileConfigurationReachesItsInstruction) {
  if (!HasAvx512()) GTEST_SKIP() << "the stand-in for LDTILECFG is an AVX-512 load";
  uint8_t want[64] = {1};  // Intel SDM: palette; bytes 16 + 2 t: row length of tile t, little-endian; 48 + t: rows
  for (int t = 0; t < 8; ++t) {
    want[16 + 2 * t] = 64;
    want[48 + t] = 16;
  }
  uint8_t seen[64] = {};
  TileConfigSeenByAssembly(seen);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(seen[i], want[i]) << "byte " << i;
}

TEST(ActivationTiles, RoundsToNearestEvenAndOrdersK) {
  if (!HasAvx512()) GTEST_SKIP() << "no AVX-512";
  const float special[] = {1.0f + 0x1p-8f,
                           1.0f + 0x3p-8f,
                           -1.0f - 0x1p-8f,
                           1.0f + 0x1.01p-7f,
                           0x1.ffp127f,
                           0x1p-140f,
                           -0.0f,
                           std::numeric_limits<float>::infinity(),
                           std::bit_cast<float>(0x7fffffffu),
                           std::bit_cast<float>(0xffffffffu)};
  for (int n : {1, 15, 16, 17, 31, 32, 33, 64, 100, 172, 576}) {
    const int64_t kp = PaddedK(n);
    Guarded x(static_cast<size_t>(n) * 4, Touch::kEnd), tiles(static_cast<size_t>(TiledValues(18, kp) * 2), Touch::kEnd);
    for (int i = 0; i < n; ++i)
      x.As<float>()[i] =
          i < 10 ? special[i] : static_cast<float>(static_cast<int>(Mix(16, static_cast<uint32_t>(i)) % 65537) - 32768) / 777.0f;
    std::memset(tiles.As<uint8_t>(), 0xa5, static_cast<size_t>(TiledValues(18, kp) * 2));
    ActivationTiles(Isa::kAvx512Amx).store_row(x.As<float>(), n, 17, tiles.As<uint16_t>());
    int64_t written = 0;
    for (int64_t i = 0; i < TiledValues(18, kp); ++i) written += tiles.As<uint16_t>()[i] != 0xa5a5;
    EXPECT_EQ(written, kp);
    for (int64_t k = 0; k < kp; ++k) {
      const uint16_t got = tiles.As<uint16_t>()[TilePosition(17, k, kp)];
      if (k >= n) ASSERT_EQ(got, 0) << k;
      else if (std::isnan(x.As<float>()[k])) ASSERT_EQ(got, 0x7fc0) << k;
      else ASSERT_EQ(got, FloatToBFloat16(x.As<float>()[k])) << n << " " << k;
    }
  }
}

}  // namespace
#endif

TEST(Tiles, PositionsAreAPermutationInTheOrderOfTheTileMultiply) {
  std::vector<int> seen(static_cast<size_t>(TiledValues(33, 128)), 0);
  ASSERT_EQ(seen.size(), 48u * 128u);
  for (int t = 0; t < 48; ++t)
    for (int k = 0; k < 128; ++k) ++seen[static_cast<size_t>(TilePosition(t, k, 128))];
  for (int count : seen) EXPECT_EQ(count, 1);
  // By hand: token 1 of the second 16 of 128 K (4 tiles a row of tiles), K 43 = tile 1, group 1, K 3 of it, which is sixth in 0 2 4 6 1 3.
  EXPECT_EQ(TilePosition(17, 43, 128), (4 + 1) * 512 + 1 * 32 + 8 + 5);
}

}  // namespace slm::kernels
