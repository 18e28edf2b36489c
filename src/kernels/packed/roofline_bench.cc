#include "kernels/packed/roofline.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/probe/contract.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slm::kernels::bench {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Highest rate of `windows` runs of work(), which returns how much it did.
template <class Work>
double BestRate(int windows, Work work) {
  double best = 0;
  for (int i = 0; i < windows; ++i) {
    const double start = CpuSeconds();
    const double done = work();
    best = std::max(best, done / (CpuSeconds() - start));
  }
  return best;
}

#if defined(__x86_64__)
constexpr int kRounds = 1 << 20;

__attribute__((target("avx512f"))) double Fma512() {
  __m512 acc[12];
  const __m512 w = _mm512_set1_ps(1);
  for (auto& v : acc) v = _mm512_setzero_ps();
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : acc) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(v) : "v"(w));
  }
  return 12.0 * kRounds * 32 * 1e-9;
}
__attribute__((target("avx2,fma"))) double Fma256() {
  __m256 acc[12];
  const __m256 w = _mm256_set1_ps(1);
  for (auto& v : acc) v = _mm256_setzero_ps();
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& v : acc) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(v) : "x"(w));
  }
  return 12.0 * kRounds * 16 * 1e-9;
}
#endif

std::vector<KernelEntry> Runnable(KernelTable table) {
  std::vector<KernelEntry> all;
  const Isa best = BestIsa(DetectCpu());
  for (const KernelEntry& e : table)
    if (Includes(best, e.isa)) all.push_back(e);
  return all;
}

// Measured once per process and question: rooflines are asked for by every row.
double Cached(int64_t key, double (*measure)(int64_t)) {
  static std::map<int64_t, double> known;
  const auto it = known.find(key);
  return it != known.end() ? it->second : known[key] = measure(key);
}

}  // namespace

HugeBuffer::HugeBuffer(size_t bytes) : map_bytes_(bytes + 2 * kHuge) {
  map_ = mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map_ == MAP_FAILED) std::abort();
  data_ = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(map_) + kHuge - 1) / kHuge * kHuge);
  madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}
HugeBuffer::~HugeBuffer() { munmap(map_, map_bytes_); }

double ReadGbps(size_t bytes) {
  const HugeBuffer buffer(bytes);
  const int rounds = static_cast<int>(std::max<size_t>(1, (size_t{64} << 20) / bytes));
  const Isa best_isa = BestIsa(DetectCpu());
  auto read = Probe(Isa::kScalar).read;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512Vnni, Isa::kNeonDot})
    if (Includes(best_isa, isa)) read = Probe(isa).read;
  int sink = 0;
  const double best = BestRate(12, [&] {
    for (int i = 0; i < rounds; ++i) sink += read(buffer.data(), static_cast<int64_t>(bytes / 512 * 512));
    return static_cast<double>(bytes) * rounds * 1e-9;
  });
  benchmark::DoNotOptimize(sink);
  return best;
}

double PeakGops(Isa isa, DotKind kind) {
  if (kind == DotKind::kInt8) {
    const auto multiply = Probe(isa).multiply;
    if (multiply == nullptr || !Supports(DetectCpu(), isa)) return 0;
    return BestRate(8, [&] { return multiply(1 << 20) * 1e-9; });
  }
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512Vnni)) return BestRate(8, Fma512);
  if (Includes(isa, Isa::kAvx2)) return BestRate(8, Fma256);
#endif
  return 0;
}

void Shapes(benchmark::internal::Benchmark* b, KernelTable table) {
  const int n_kernels = static_cast<int>(Runnable(table).size());
  b->ArgNames({"kernel", "m", "n", "k"});
  for (int i = 0; i < n_kernels; ++i) {
    if (Runnable(table)[static_cast<size_t>(i)].isa == Isa::kScalar) continue;
    for (int m : {1, 2, 4, 6, 8, 16, 64, 512}) b->Args({i, m, 512, 1536});  // 0.4 to 3 MB: L2 for the 4-bit kinds
    for (int m : {1, 2, 4, 6, 8}) b->Args({i, m, 131072, 2048});            // past any cache: a head
  }
}

void RunMatMul(benchmark::State& state, KernelTable table, DotKind kind) {
  const KernelEntry e = Runnable(table)[static_cast<size_t>(state.range(0))];
  const int m = static_cast<int>(state.range(1));
  const int64_t n = state.range(2), k = state.range(3);
  const size_t bytes = static_cast<size_t>(PackedBytes(e.kind, n, k));
  const HugeBuffer w(bytes), a(static_cast<size_t>(m * k)), x(static_cast<size_t>(m * k * 4)), scale(static_cast<size_t>(m * k / 8)),
      sum(static_cast<size_t>(m * k / 8)), out(static_cast<size_t>(m * n * 4)), check(static_cast<size_t>(m * kPanelRows * 4)),
      scratch(static_cast<size_t>(ScratchBytes(e.kind, k)));
  for (size_t i = 0; i < bytes; ++i) w.data()[i] = static_cast<uint8_t>(i * 37 % 59);  // small halfs, no NaN, in every kind
  for (int64_t i = 0; i < m * k; ++i) {
    a.data()[i] = static_cast<uint8_t>(i * 11 % 200 - 100);
    reinterpret_cast<float*>(x.data())[i] = static_cast<float>(i % 13) - 6;
    reinterpret_cast<int32_t*>(sum.data())[i / kBlockK] += reinterpret_cast<int8_t*>(a.data())[i];
    reinterpret_cast<float*>(scale.data())[i / kBlockK] = 0.01f;
  }
  MatMulArgs args;
  args.w = w.data();
  args.panel_bytes = PanelBytes(e.kind, k);
  args.k = static_cast<int>(k);
  args.m = m;
  args.a = reinterpret_cast<int8_t*>(a.data());
  args.a_scale = reinterpret_cast<float*>(scale.data());
  args.a_sum = reinterpret_cast<int32_t*>(sum.data());
  args.x = reinterpret_cast<float*>(x.data());
  args.x_stride = k;
  args.scratch = scratch.data();
  args.panel_end = 1;
  args.out = reinterpret_cast<float*>(check.data());
  args.out_stride = kPanelRows;
  SelectKernel(table, e.kind, Isa::kScalar).fn(args);
  args.out = reinterpret_cast<float*>(out.data());
  args.out_stride = n;
  args.panel_end = static_cast<int>(n / kPanelRows);
  for (auto _ : state) {
    e.kernel.fn(args);
    benchmark::ClobberMemory();
  }
  for (int i = 0; i < m; ++i)
    if (std::memcmp(args.out + i * n, check.data() + i * kPanelRows * 4, kPanelRows * 4) != 0)
      return state.SkipWithError("differs from the scalar kernel");
  const double peak = Cached(static_cast<int64_t>(e.isa) * 2 + (kind == DotKind::kInt8),
                             [](int64_t key) { return PeakGops(static_cast<Isa>(key / 2), key % 2 ? DotKind::kInt8 : DotKind::kFloat32); });
  const double read = Cached(-static_cast<int64_t>(bytes), [](int64_t key) { return ReadGbps(static_cast<size_t>(-key)); });
  using benchmark::Counter;
  const double ops = 2.0 * m * static_cast<double>(n * k);
  const auto rate = static_cast<Counter::Flags>(Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(static_cast<double>(bytes) * 1e-9, rate);
  state.counters["GOP/s"] = Counter(ops * 1e-9, rate);
  state.counters["%peak"] = Counter(ops * 1e-9 / peak * 100, rate);
  state.counters["%read"] = Counter(static_cast<double>(bytes) * 1e-9 / read * 100, rate);
  state.counters["tok/s"] = Counter(m, rate);
  state.SetLabel(e.kernel.name);
}

}  // namespace slm::kernels::bench
