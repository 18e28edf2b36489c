// Bench-only: what this machine can do right now, so that a kernel's figure is printed beside its ceiling (in *_bench.cc only).
#pragma once
#include <benchmark/benchmark.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/packed/table.h"

namespace slm::kernels::bench {

// Zeroed memory on 2 MB pages where the system grants them. Freed by the destructor.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  uint8_t* data() const { return data_; }

 private:
  void* map_;
  size_t map_bytes_;
  uint8_t* data_;
};

// Best of several short windows on the calling thread, in CPU time: reading `bytes` over and over, GB/s; multiply-adds x 2 of
// the widest dot product of tier `isa` from registers, GOP/s (VPDPBUSD, VPMADDUBSW + VPMADDWD + VPADDD, or f32 FMA).
enum class DotKind { kInt8, kFloat32 };
double ReadGbps(size_t bytes);
double PeakGops(Isa isa, DotKind kind);

// One matmul: args are index into the runnable kernels of `table`, m, n, k. Prints GB/s of packed weights, GOP/s, tokens/s of
// this one matrix, and the share of the nearer ceiling; checks its own result against the scalar kernel for one panel.
void RunMatMul(benchmark::State& state, KernelTable table, DotKind kind);

// Shapes every family measures: decode from L2 and DRAM, verification, prefill.
void Shapes(benchmark::internal::Benchmark* b, KernelTable table);

}  // namespace slm::kernels::bench
