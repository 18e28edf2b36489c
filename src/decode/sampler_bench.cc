// Cost of one draw at the vocabulary of the largest models (262144 logits with the spread of a real model's).
#include <benchmark/benchmark.h>

#include <random>

#include "decode/sampler.h"

namespace slm::decode {
namespace {

constexpr int kV = 262144;

std::vector<float> Row() {
  std::mt19937_64 g(1);
  std::normal_distribution<float> d(0, 3);
  std::vector<float> row(kV);
  for (float& x : row) x = d(g);
  row[777] = 22;
  return row;
}

void Run(benchmark::State& state, const SamplingOptions& o) {
  const std::vector<float> row = Row();
  Sampler sampler(kV, 64);
  if (!sampler.Start(o, {}).ok()) return state.SkipWithError("options");
  for (auto _ : state) {
    const auto id = sampler.Sample(row);
    if (!id.ok()) return state.SkipWithError("sample");
    benchmark::DoNotOptimize(id.value());
  }
}

void Greedy(benchmark::State& s) { Run(s, {}); }
void Temperature(benchmark::State& s) { Run(s, {.temperature = 0.8f}); }
void TopK40(benchmark::State& s) { Run(s, {.temperature = 0.8f, .top_k = 40}); }
void TopP95(benchmark::State& s) { Run(s, {.temperature = 0.8f, .top_p = 0.95f}); }
void TopK40P95Repetition(benchmark::State& s) {
  Run(s, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repetition_penalty = 1.1f});
}

BENCHMARK(Greedy)->Unit(benchmark::kMicrosecond);
BENCHMARK(Temperature)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopK40)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopP95)->Unit(benchmark::kMicrosecond);
BENCHMARK(TopK40P95Repetition)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace slm::decode
