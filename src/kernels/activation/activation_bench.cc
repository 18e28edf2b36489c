// Gated activations, soft cap and argmax: GB/s read and written, CPU time of the thread.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/cpu_features.h"
#include "kernels/activation/contract.h"

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

// Args: tier, activation, n.
void Gate(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int64_t n = state.range(2);
  std::vector<float> g(n, 0.75f), u(n, 0.5f), y(n);
  const ActivationKernels kernels = Activations(isa);
  for (auto _ : state) {
    kernels.gate(g.data(), u.data(), static_cast<int>(state.range(1)), n, y.data());
    benchmark::ClobberMemory();
  }
  Report(state, 12.0 * static_cast<double>(n), kernels.name);
}
// Args: tier, n.
void Softcap(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int64_t n = state.range(1);
  std::vector<float> x(n, 3.0f);
  const ActivationKernels kernels = Activations(isa);
  for (auto _ : state) {
    kernels.softcap(x.data(), 30.0f, n);
    benchmark::ClobberMemory();
  }
  Report(state, 8.0 * static_cast<double>(n), kernels.name);
}
void Argmax(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  if (Absent(state, isa)) return;
  const int64_t n = state.range(1);
  std::vector<float> x(n, 0.0f);
  x[n / 2] = 1.0f;
  const ActivationKernels kernels = Activations(isa);
  float value = 0;
  for (auto _ : state)
    if (kernels.argmax(x.data(), n, &value) != n / 2) state.SkipWithError("wrong index");
  Report(state, 4.0 * static_cast<double>(n), kernels.name);
}
BENCHMARK(Gate)->ArgNames({"isa", "act", "n"})->ArgsProduct({{0, 1, 2}, {0, 1, 2}, {1536}});
BENCHMARK(Softcap)->ArgNames({"isa", "n"})->ArgsProduct({{0, 1, 2}, {4096}});
BENCHMARK(Argmax)->ArgNames({"isa", "n"})->ArgsProduct({{0, 1, 2}, {49152, 262144}});

}  // namespace
}  // namespace slm::kernels
