// Decode, verification and prefill shapes of every tier this machine has. Compare tiers in one interleaved run:
// kernels_bench --benchmark_filter=MatMulPlanes --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
#include "kernels/packed/roofline.h"

namespace slm::kernels::bench {
namespace {

void MatMulPlanes(benchmark::State& state) { RunMatMul(state, MatMulPlanesKernels(), DotKind::kInt8); }
BENCHMARK(MatMulPlanes)->Apply([](benchmark::internal::Benchmark* b) { Shapes(b, MatMulPlanesKernels()); });

}  // namespace
}  // namespace slm::kernels::bench
