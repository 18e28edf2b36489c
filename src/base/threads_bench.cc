// Cost of one barrier and of one empty job. Wall time: the waiting is the point.
#include <benchmark/benchmark.h>

#include "base/threads.h"

namespace slm {
namespace {

void Barrier(benchmark::State& state) {
  constexpr int kRounds = 1000;
  auto owner = ThreadTeam::Create(static_cast<int>(state.range(0))).Take();
  ThreadTeam& team = *owner;
  auto job = [&team](int t, int) {
    for (int i = 0; i < kRounds; ++i) team.Barrier(t);
  };
  for (auto _ : state) team.Run(job);
  state.SetItemsProcessed(state.iterations() * kRounds);
  state.counters["ns/barrier"] =
      benchmark::Counter(kRounds * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void EmptyJob(benchmark::State& state) {
  auto owner = ThreadTeam::Create(static_cast<int>(state.range(0))).Take();
  ThreadTeam& team = *owner;
  auto job = [](int, int) {};
  for (auto _ : state) team.Run(job);
}

BENCHMARK(Barrier)->ArgName("threads")->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseRealTime();
BENCHMARK(EmptyJob)->ArgName("threads")->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseRealTime();

}  // namespace
}  // namespace slm
