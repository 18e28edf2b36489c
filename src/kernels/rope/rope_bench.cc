// Rotary embedding of one token: GB/s of values rotated in place, CPU time of the thread.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/cpu_features.h"
#include "kernels/rope/contract.h"

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

// Args: tier, interleaved, D.
void Rotate(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int dim = static_cast<int>(state.range(2)), n_heads = 12;
  std::vector<float> x(static_cast<size_t>(n_heads * dim), 1.0f), cos(dim / 2, 0.8f), sin(dim / 2, 0.6f);
  const RopeKernels kernels = Rope(isa);
  for (auto _ : state) {
    kernels.rope({x.data(), n_heads, dim, dim, state.range(1) != 0, cos.data(), sin.data()});
    benchmark::ClobberMemory();
  }
  Report(state, 8.0 * n_heads * dim, kernels.name);
}
BENCHMARK(Rotate)->ArgNames({"isa", "interleaved", "D"})->ArgsProduct({{0, 1, 2}, {0, 1}, {64, 128}});

}  // namespace
}  // namespace slm::kernels
