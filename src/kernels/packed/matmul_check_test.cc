#include "kernels/packed/matmul_check.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/float16.h"
#include "kernels/matmul_float/contract.h"
#include "kernels/matmul_planes/contract.h"
#include "kernels/matmul_q4/contract.h"
#include "kernels/matmul_q8/contract.h"
#include "kernels/packed/position.h"

namespace slm::kernels::check {
namespace {

constexpr size_t kPage = 4096;

const char* KindName(PackedKind kind) {
  constexpr const char* kNames[] = {"q4", "q4min", "q8", "q8min", "f16", "bf16", "f32", "q5", "q5min", "q4k", "q5k", "q6k"};
  return kNames[static_cast<int>(kind)];
}

void PutFloat(PackedKind kind, float v, uint8_t* dst) {
  if (kind == PackedKind::kF32) {
    std::memcpy(dst, &v, 4);
    return;
  }
  const uint16_t h = kind == PackedKind::kF16 ? FloatToHalf(v) : FloatToBFloat16(v);
  std::memcpy(dst, &h, 2);
}

uint8_t MakeCode(PackedKind kind, Fill fill, uint32_t i, int64_t row) {
  const uint8_t top = static_cast<uint8_t>(CodeCount(kind) - 1);
  switch (fill) {
    case Fill::kLowestTimesHighest:
    case Fill::kLowestTimesLowest: return 0;
    case Fill::kHighestTimesHighest: return top;
    case Fill::kZero: return static_cast<uint8_t>(ZeroPoint(kind));
    case Fill::kOneLargeRow: return row == 5 ? top : static_cast<uint8_t>(ZeroPoint(kind));
    default: return static_cast<uint8_t>(Mix(top == 15 ? 6 : top == 31 ? 13 : top == 63 ? 14 : 7, i) % (top + 1u));
  }
}

// Scales and minimums of all rows: n_blocks blocks a row.
void MakeScales(Problem& p, Fill fill, int64_t n_blocks) {
  const bool in_super = LinesOf(p.kind).super > 0;
  for (uint32_t i = 0; i < p.n * (in_super ? SuperBlocks(p.k) : n_blocks); ++i) {
    p.scale.push_back(fill == Fill::kZero ? 0.0f : static_cast<float>(1 + Mix(1, i) % 1023) / 16384.0f);
    p.min.push_back(0.0f - static_cast<float>(Mix(2, i) % 1024) / 4096.0f);  // not -0
  }
  if (!in_super) return;
  const bool two = p.kind == PackedKind::kQ6K;
  for (uint32_t i = 0; i < p.n * n_blocks * (two ? 2 : 1); ++i)
    p.sub_scale.push_back(two ? static_cast<int8_t>(Mix(11, i) % 256) : static_cast<int8_t>(Mix(11, i) % 64));
  for (uint32_t i = 0; i < p.n * n_blocks; ++i) p.sub_min.push_back(static_cast<uint8_t>(Mix(12, i) % 64));
}

int8_t MakeActivation(Fill fill, uint32_t i) {
  switch (fill) {
    case Fill::kLowestTimesLowest: return -127;
    case Fill::kLowestTimesHighest:
    case Fill::kHighestTimesHighest: return 127;
    case Fill::kZero: return 0;
    default: return static_cast<int8_t>(static_cast<int>(Mix(3, i) % 255) - 127);
  }
}

uint32_t Crc32(const uint8_t* p, size_t n) {  // reflected polynomial 0xEDB88320, as zlib
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n; ++i) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

struct Operand {
  Guarded memory;
  template <class T>
  Operand(const std::vector<T>& v, Touch touch) : memory(v.size() * sizeof(T), touch) {
    if (!v.empty()) std::memcpy(memory.As<uint8_t>(), v.data(), v.size() * sizeof(T));
    memory.Freeze();
  }
};

void ExpectSameBits(const std::vector<float>& want, const std::vector<float>& got, const std::string& what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(want[i]), std::bit_cast<uint32_t>(got[i])) << what << " at " << i << ": " << want[i] << " " << got[i];
}

MatMulKernel Scalar(KernelTable table, PackedKind kind) { return SelectKernel(table, kind, Isa::kScalar); }

void CompareTo(const KernelEntry& e, MatMulKernel scalar, const Problem& p, const RunOptions& options) {
  const std::string what =
      std::string(e.kernel.name) + " n " + std::to_string(p.n) + " k " + std::to_string(p.k) + " m " + std::to_string(p.m);
  ExpectSameBits(Run(scalar, p, options), Run(e.kernel, p, options), what);
}

// Residuals for one block in three; of four tokens the third has one for every block, the fourth none.
void AddResiduals(Problem& p, Fill fill) {
  const int64_t n_blocks = PaddedK(p.k) / kBlockK;
  ResidualBlock garbage;
  std::memset(&garbage, 0x7f, sizeof(garbage));  // a block far outside, a scale near the largest
  p.residual.assign(static_cast<size_t>(p.m * n_blocks), garbage);
  for (int64_t t = 0; t < p.m; ++t) {
    int32_t count = 0;
    for (int64_t b = 0; b * kBlockK < p.k; ++b) {
      if (t % 4 == 3 || (t % 4 != 2 && Mix(9, static_cast<uint32_t>(t * n_blocks + b)) % 3 != 0)) continue;
      ResidualBlock& r = p.residual[static_cast<size_t>(t * n_blocks + count++)];
      r.block = static_cast<int32_t>(b);
      r.scale = p.a_scale[static_cast<size_t>(t * n_blocks + b)] / 256;
      r.sum = 0;
      for (int64_t i = 0; i < kBlockK; ++i) {
        const int64_t k = b * kBlockK + i;
        r.q[i] = k >= p.k                 ? int8_t{0}
                 : fill == Fill::kFixture ? static_cast<int8_t>(static_cast<int>(Mix(10, static_cast<uint32_t>(t * p.k + k)) % 255) - 127)
                                          : MakeActivation(fill, static_cast<uint32_t>(t * p.k + k + 77));
        r.sum += r.q[i];
      }
    }
    p.residual_count.push_back(count);
  }
}

}  // namespace

Guarded::Guarded(size_t bytes, Touch touch) {
  const size_t room = (bytes + kPage - 1) / kPage * kPage;
  map_bytes_ = room + 2 * kPage;
  void* p = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  map_ = static_cast<uint8_t*>(p);
  if (room > 0 && mprotect(map_ + kPage, room, PROT_READ | PROT_WRITE) != 0) std::abort();
  data_ = touch == Touch::kStart ? map_ + kPage : map_ + kPage + room - bytes;
}
Guarded::~Guarded() { munmap(map_, map_bytes_); }
void Guarded::Freeze() {
  if (map_bytes_ > 2 * kPage && mprotect(map_ + kPage, map_bytes_ - 2 * kPage, PROT_READ) != 0) std::abort();
}

Problem MakeProblem(PackedKind kind, int64_t n, int64_t k, int m, Fill fill) {
  Problem p{.kind = kind,
            .n = n,
            .k = k,
            .m = m,
            .codes = {},
            .scale = {},
            .min = {},
            .sub_scale = {},
            .sub_min = {},
            .floats = {},
            .a = {},
            .a_scale = {},
            .a_sum = {},
            .residual = {},
            .residual_count = {},
            .x = {}};
  const int64_t kp = PaddedK(k), n_blocks = (k + kBlockK - 1) / kBlockK;
  if (IsQuantized(kind)) {
    for (int64_t i = 0; i < n * k; ++i) p.codes.push_back(MakeCode(kind, fill, static_cast<uint32_t>(i), i / k));
    MakeScales(p, fill, n_blocks);
    p.a.resize(m * kp);
    p.a_sum.resize(m * kp / kBlockK);
    for (int64_t t = 0; t < m; ++t)
      for (int64_t j = 0; j < k; ++j) {
        p.a[t * kp + j] = MakeActivation(fill, static_cast<uint32_t>(t * k + j));
        p.a_sum[(t * kp + j) / kBlockK] += p.a[t * kp + j];
      }
    for (uint32_t i = 0; i < p.a_sum.size(); ++i) p.a_scale.push_back(static_cast<float>(1 + Mix(4, i) % 65535) / 1048576.0f);
    AddResiduals(p, fill);
    return p;
  }
  const int bytes = ElementBytes(kind);
  p.floats.resize(n * k * bytes);
  for (int64_t i = 0; i < n * k; ++i) {
    const float exact = static_cast<float>(static_cast<int>(Mix(8, static_cast<uint32_t>(i)) % 127) - 63) / 64.0f;
    PutFloat(kind, fill == Fill::kFixture ? exact : exact * 1.01f + 0.003f, p.floats.data() + i * bytes);
  }
  p.x.resize(m * kp);
  for (int64_t t = 0; t < m; ++t)
    for (int64_t j = 0; j < k; ++j)
      p.x[t * kp + j] = static_cast<float>(static_cast<int>(Mix(5, static_cast<uint32_t>(t * k + j)) % 20001) - 10000) / 1024.0f;
  return p;
}

void PackProblem(const Problem& p, int64_t row_begin, int64_t row_end, uint8_t* dst) {
  const int64_t n_blocks = (p.k + kBlockK - 1) / kBlockK;
  if (!IsQuantized(p.kind))
    return PackFloat(p.kind, p.k, row_begin, row_end, p.floats.data() + row_begin * p.k * ElementBytes(p.kind), dst);
  const int64_t n_scales = LinesOf(p.kind).super > 0 ? SuperBlocks(p.k) : n_blocks;
  const float* scale = p.scale.data() + row_begin * n_scales;
  const float* min = HasMin(p.kind) ? p.min.data() + row_begin * n_scales : nullptr;
  if (InPlanes(p.kind)) {
    const int64_t parts = p.kind == PackedKind::kQ6K ? 2 : 1;
    return PackPlanes({p.kind, p.k, row_begin, row_end, p.codes.data() + row_begin * p.k, scale, min,
                       !p.sub_scale.empty() ? p.sub_scale.data() + row_begin * n_blocks * parts : nullptr,
                       HasMin(p.kind) && !p.sub_min.empty() ? p.sub_min.data() + row_begin * n_blocks : nullptr, dst});
  }
  if (CodeLines(p.kind) == 8) return PackQ4({p.kind, p.k, row_begin, row_end, p.codes.data() + row_begin * p.k, scale, min, dst});
  std::vector<int8_t> codes;
  for (int64_t i = row_begin * p.k; i < row_end * p.k; ++i) codes.push_back(static_cast<int8_t>(p.codes[i] - 128));
  PackQ8({p.kind, p.k, row_begin, row_end, codes.data(), scale, min, dst});
}

std::vector<float> Run(MatMulKernel kernel, const Problem& p, const RunOptions& o) {
  const int64_t kp = PaddedK(p.k), np = PaddedRows(p.n);
  Guarded w(PackedBytes(p.kind, p.n, p.k), o.touch), out(p.m * np * 4, o.touch), scratch(ScratchBytes(p.kind, p.k), o.touch);
  PackProblem(p, 0, p.n, w.As<uint8_t>());
  w.Freeze();
  std::vector<float> bias_values(np, 0.0f);
  for (int64_t i = 0; i < p.n; ++i) bias_values[i] = static_cast<float>(i) * 0.37f - 3;
  for (int64_t i = 0; i < p.m * np; ++i) out.As<float>()[i] = o.output == Output::kAdded ? static_cast<float>(i % 7) - 2.5f : -1e30f;
  const Operand a(p.a, o.touch), a_scale(p.a_scale, o.touch), a_sum(p.a_sum, o.touch), residual(p.residual, o.touch),
      residual_count(p.residual_count, o.touch), x(p.x, o.touch), bias(bias_values, o.touch);
  MatMulArgs args;
  args.w = w.As<uint8_t>();
  args.panel_bytes = PanelBytes(p.kind, p.k);
  args.k = static_cast<int>(kp);
  args.m = p.m;
  args.a = a.memory.As<int8_t>();
  args.a_scale = a_scale.memory.As<float>();
  args.a_sum = a_sum.memory.As<int32_t>();
  args.residual = residual.memory.As<ResidualBlock>();
  args.residual_count = residual_count.memory.As<int32_t>();
  args.x = x.memory.As<float>();
  args.x_stride = kp;
  args.out = out.As<float>();
  args.out_stride = np;
  args.bias = o.bias == Bias::kSome ? bias.memory.As<float>() : nullptr;
  args.accumulate = o.output == Output::kAdded;
  args.scratch = ScratchBytes(p.kind, p.k) > 0 ? scratch.As<uint8_t>() : nullptr;
  std::vector<int> borders = {0};
  borders.insert(borders.end(), o.panel_cuts.begin(), o.panel_cuts.end());
  borders.push_back(static_cast<int>(np / kPanelRows));
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    args.panel_begin = borders[i];
    args.panel_end = borders[i + 1];
    kernel.fn(args);
  }
  return {out.As<float>(), out.As<float>() + p.m * np};
}

std::vector<KernelEntry> Runnable(KernelTable table) {
  std::vector<KernelEntry> all;
  const CpuFeatures cpu = DetectCpu();
  for (const KernelEntry& e : table)
    if (Supports(cpu, e.isa)) all.push_back(e);
  return all;
}

void ExpectBitsEqualScalar(KernelTable table) {
  for (const KernelEntry& e : Runnable(table)) {
    if (e.isa == Isa::kScalar) continue;
    const MatMulKernel scalar = Scalar(table, e.kind);
    for (int64_t k : {1, 31, 64, 100, 172, 256, 512, 576, 640, 896, 960, 1152, 2048})
      for (int m : {1, 3}) CompareTo(e, scalar, MakeProblem(e.kind, 49, k, m, Fill::kRandom), {});
    for (int64_t n : {1, 31, 32, 33, 49, 97})
      for (Touch touch : {Touch::kEnd, Touch::kStart})
        CompareTo(e, scalar, MakeProblem(e.kind, n, 172, 7, Fill::kRandom),
                  {.touch = touch, .bias = Bias::kSome, .output = Output::kWritten, .panel_cuts = {}});
    for (int m = 1; m <= 70; ++m) CompareTo(e, scalar, MakeProblem(e.kind, 33, 96, m, Fill::kRandom), {});
    for (int m : {kTokenBlock, kTokenBlock + 1, 2 * kTokenBlock + 5})
      CompareTo(e, scalar, MakeProblem(e.kind, 32, 64, m, Fill::kRandom), {});
    for (Fill fill : {Fill::kLowestTimesHighest, Fill::kLowestTimesLowest, Fill::kHighestTimesHighest, Fill::kZero, Fill::kOneLargeRow})
      for (int m : {1, 2, 3, 4, 5, 6}) CompareTo(e, scalar, MakeProblem(e.kind, 40, 320, m, fill), {});
    for (Bias bias : {Bias::kNone, Bias::kSome})
      CompareTo(e, scalar, MakeProblem(e.kind, 49, 128, 5, Fill::kRandom),
                {.touch = Touch::kEnd, .bias = bias, .output = Output::kAdded, .panel_cuts = {}});
    const Problem wide = MakeProblem(e.kind, 161, 128, 5, Fill::kRandom);
    ExpectSameBits(Run(e.kernel, wide, {}),
                   Run(e.kernel, wide, {.touch = Touch::kEnd, .bias = Bias::kNone, .output = Output::kWritten, .panel_cuts = {1, 3, 3, 4}}),
                   e.kernel.name);
  }
}

void ExpectTokenIndependentOfM(KernelTable table) {
  for (const KernelEntry& e : Runnable(table)) {
    constexpr int kTokens = 13;
    const Problem all = MakeProblem(e.kind, 33, 160, kTokens, Fill::kRandom);
    const std::vector<float> together = Run(e.kernel, all, {});
    const int64_t kp = PaddedK(all.k), nb = kp / kBlockK, np = PaddedRows(all.n);
    for (int t = 0; t < kTokens; ++t) {
      Problem one = all;
      one.m = 1;
      if (IsQuantized(e.kind)) {
        one.a.assign(all.a.begin() + t * kp, all.a.begin() + (t + 1) * kp);
        one.a_scale.assign(all.a_scale.begin() + t * nb, all.a_scale.begin() + (t + 1) * nb);
        one.a_sum.assign(all.a_sum.begin() + t * nb, all.a_sum.begin() + (t + 1) * nb);
        one.residual.assign(all.residual.begin() + t * nb, all.residual.begin() + (t + 1) * nb);
        one.residual_count = {all.residual_count[t]};
      } else {
        one.x.assign(all.x.begin() + t * kp, all.x.begin() + (t + 1) * kp);
      }
      ExpectSameBits({together.begin() + t * np, together.begin() + (t + 1) * np}, Run(e.kernel, one, {}), e.kernel.name);
    }
  }
}

// Bound: every output passes through at most `steps` roundings, each relative 2^-24 of a value below the sum of magnitudes
// (Higham, Accuracy and Stability, section 3.1: gamma_n |x|^T |w|).
void ExpectMatchesNumpy(KernelTable table) {
  std::ifstream file(SLM_SOURCE_DIR "/tests/tiny/matmul.json");
  const nlohmann::json fixture = nlohmann::json::parse(file);
  const int64_t n = fixture["n"], k = fixture["k"], np = PaddedRows(n);
  const int m = fixture["m"];
  for (const KernelEntry& e : Runnable(table)) {
    const nlohmann::json& want = fixture["kinds"][KindName(e.kind)];
    const Problem p = MakeProblem(e.kind, n, k, m, Fill::kFixture);
    std::vector<uint8_t> packed(PackedBytes(e.kind, n, k));
    PackProblem(p, 32, n, packed.data());  // two parts, the later first: packing ranges are independent
    PackProblem(p, 0, 32, packed.data());
    EXPECT_EQ(Crc32(packed.data(), packed.size()), want["crc32"].get<uint32_t>()) << KindName(e.kind);
    const std::vector<float> got = Run(e.kernel, p, {});
    const double steps = IsQuantized(e.kind) ? static_cast<double>(PaddedK(k) / kBlockK) * 2 + 4 : static_cast<double>(k);
    for (int t = 0; t < m; ++t)
      for (int64_t i = 0; i < n; ++i) {
        const double exact = want["out"][t * n + i], size = want["size"][t * n + i];
        ASSERT_NEAR(got[t * np + i], exact, steps * 0x1p-24 * 1.01 * size) << e.kernel.name << " token " << t << " row " << i;
      }
    for (int t = 0; t < m; ++t)
      for (int64_t i = n; i < np; ++i) ASSERT_EQ(got[t * np + i], 0.0f) << e.kernel.name << ": padded row " << i;
  }
}

void ExpectSelectsWhatItSays(KernelTable table, MatMulKernel (*select)(PackedKind, Isa)) {
  int checked = 0;
  for (const KernelEntry& e : table) {
    const MatMulKernel chosen = select(e.kind, e.isa);
    EXPECT_STREQ(chosen.name, e.kernel.name);
    EXPECT_EQ(chosen.fn, e.kernel.fn);
    const std::string suffix = std::string("_") + IsaName(e.isa), name = e.kernel.name;
    EXPECT_TRUE(name.ends_with(suffix)) << name;
    EXPECT_NE(name.find(std::string("_") + KindName(e.kind) + "_"), std::string::npos) << name;
    EXPECT_LE(name.size(), 48u);
#if defined(__x86_64__)
    EXPECT_STREQ(select(e.kind, Isa::kNeonDot).name, select(e.kind, Isa::kScalar).name) << "no Arm kernel is in this table";
    EXPECT_STREQ(select(e.kind, Isa::kAvx512Amx).name, select(e.kind, Isa::kAvx512Vnni).name);
    EXPECT_STRNE(select(e.kind, Isa::kAvx2).name, select(e.kind, Isa::kScalar).name);
    EXPECT_EQ(std::string(select(e.kind, Isa::kAvxVnni).name).ends_with("_avxvnni"), IsQuantized(e.kind) && !InPlanes(e.kind));
#elif defined(__aarch64__)
    EXPECT_STREQ(select(e.kind, Isa::kAvx2).name, select(e.kind, Isa::kScalar).name) << "no x86 kernel is in this table";
    EXPECT_STRNE(select(e.kind, Isa::kNeonDot).name, select(e.kind, Isa::kScalar).name);
    // The float kinds gain nothing from i8mm.
    EXPECT_EQ(std::string(select(e.kind, Isa::kNeonI8mm).name).ends_with("_neon_i8mm"), IsQuantized(e.kind));
#endif
    for (const char* forced : {"scalar", "avx2", "avx512vnni", "neon_dotprod"}) {  // tiers that every family has
      const Result<Isa> isa = ChooseIsa(DetectCpu(), forced);
      if (!isa.ok()) continue;
      EXPECT_TRUE(std::string(select(e.kind, isa.value()).name).ends_with(std::string("_") + forced));
    }
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

void ExpectNanShows(KernelTable table) {
  for (const KernelEntry& e : Runnable(table)) {
    Problem p = MakeProblem(e.kind, 32, 128, 2, Fill::kRandom);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    (IsQuantized(e.kind) ? p.a_scale[PaddedK(p.k) / kBlockK + 1] : p.x[PaddedK(p.k) + 40]) = nan;  // of token 1
    const std::vector<float> out = Run(e.kernel, p, {});
    for (int i = 0; i < 32; ++i) {
      EXPECT_TRUE(std::isfinite(out[i])) << e.kernel.name;
      EXPECT_TRUE(std::isnan(out[32 + i])) << e.kernel.name;
    }
  }
}

}  // namespace slm::kernels::check
