// Decode, verification and prefill shapes of every tier this machine has. Compare tiers in one interleaved run:
// kernels_bench --benchmark_filter=MatMulQ8 --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
#include "kernels/packed/roofline.h"

namespace slm::kernels::bench {
namespace {

void MatMulQ8(benchmark::State& state) { RunMatMul(state, MatMulQ8Kernels(), DotKind::kInt8); }
BENCHMARK(MatMulQ8)->Apply([](benchmark::internal::Benchmark* b) { Shapes(b, MatMulQ8Kernels()); });

}  // namespace
}  // namespace slm::kernels::bench
