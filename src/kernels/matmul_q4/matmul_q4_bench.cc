// Decode, verification and prefill shapes of every tier this machine has. Compare tiers in one interleaved run:
// kernels_bench --benchmark_filter=MatMulQ4 --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
#include "kernels/packed/roofline.h"

namespace slm::kernels::bench {
namespace {

void MatMulQ4(benchmark::State& state) { RunMatMul(state, MatMulQ4Kernels(), DotKind::kInt8); }
BENCHMARK(MatMulQ4)->Apply([](benchmark::internal::Benchmark* b) { Shapes(b, MatMulQ4Kernels()); });

}  // namespace
}  // namespace slm::kernels::bench
