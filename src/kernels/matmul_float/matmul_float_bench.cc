// Decode, verification and prefill shapes of every tier this machine has. Compare tiers in one interleaved run:
// kernels_bench --benchmark_filter=MatMulFloat --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
#include "kernels/packed/roofline.h"

namespace slm::kernels::bench {
namespace {

void MatMulFloat(benchmark::State& state) { RunMatMul(state, MatMulFloatKernels(), DotKind::kFloat32); }
BENCHMARK(MatMulFloat)->Apply([](benchmark::internal::Benchmark* b) { Shapes(b, MatMulFloatKernels()); });

}  // namespace
}  // namespace slm::kernels::bench
