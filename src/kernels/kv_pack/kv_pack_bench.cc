// f32 to f16 store: GB/s read and written, CPU time of the thread.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/cpu_features.h"
#include "kernels/kv_pack/contract.h"

namespace slm::kernels {
namespace {

bool Absent(benchmark::State& state, Isa isa) {
  if (isa <= BestIsa(DetectCpu())) return false;
  state.SkipWithError("this CPU lacks the tier");
  return true;
}
// Bytes read and written by one call.
void Report(benchmark::State& state, double bytes, const char* name) {
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(name);
}

// Args: tier, n.
void StoreF16(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int n = static_cast<int>(state.range(1));
  std::vector<float> x(n, 1.25f);
  std::vector<uint16_t> y(n);
  const KvPackKernels kernels = KvPack(isa);
  for (auto _ : state) {
    kernels.store_f16(x.data(), n, y.data());
    benchmark::ClobberMemory();
  }
  Report(state, 6.0 * n, kernels.name);
}
BENCHMARK(StoreF16)->ArgNames({"isa", "n"})->ArgsProduct({{0, 1, 2}, {64, 1024}});

}  // namespace
}  // namespace slm::kernels
