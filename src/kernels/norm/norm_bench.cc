// RMSNorm: GB/s of rows that stay in L1 and L2, CPU time of the thread.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/cpu_features.h"
#include "kernels/norm/contract.h"

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
void RmsNorm(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int n = static_cast<int>(state.range(1));
  std::vector<float> x(n, 1.25f), w(n, 0.5f), y(n);
  const NormKernels kernels = Norm(isa);
  for (auto _ : state) {
    kernels.rms_norm(x.data(), w.data(), 1e-6f, n, y.data());
    benchmark::ClobberMemory();
  }
  Report(state, 12.0 * n, kernels.name);
}
void AddRmsNorm(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int n = static_cast<int>(state.range(1));
  std::vector<float> x(n, 1.25f), d(n, 0.0f), w(n, 0.5f), y(n);
  const NormKernels kernels = Norm(isa);
  for (auto _ : state) {
    kernels.add_rms_norm(x.data(), d.data(), w.data(), 1e-6f, n, y.data());
    benchmark::ClobberMemory();
  }
  Report(state, 20.0 * n, kernels.name);
}
BENCHMARK(RmsNorm)->ArgNames({"isa", "n"})->ArgsProduct({{0, 1, 2}, {576, 2048}});
BENCHMARK(AddRmsNorm)->ArgNames({"isa", "n"})->ArgsProduct({{0, 1, 2}, {576, 2048}});

}  // namespace
}  // namespace slm::kernels
