// Attention over f16 and int8 caches: GFLOP/s (prefill, share of the FP32 FMA peak measured in the same process), GB/s of the
// cache and keys per second (decode). Only visible (query, key) pairs count as work: 4 D flop each. Times are CPU time of the thread.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/cpu_features.h"
#include "base/float16.h"
#include "base/mmap.h"
#include "kernels/attention_int8/contract.h"

namespace slm::kernels {
namespace {

struct Setup {
  Buffer k, v, q, out, partial, scratch;
  AttentionArgs a;
  Setup(KvType type, int hq, int hkv, int dim, int m, int position, int slots) {
    auto take = [](int64_t bytes) { return Buffer::Allocate(static_cast<size_t>(bytes)).Take(); };
    a.kv_head_stride = int64_t{(slots + kTileSlots - 1) / kTileSlots} * kTileSlots * dim;
    const int64_t k_head = type == KvType::kF16 ? a.kv_head_stride * 2 : KeyHeadBytes(a.kv_head_stride, dim);
    const int64_t v_head = type == KvType::kF16 ? a.kv_head_stride * 2 : ValueHeadBytes(a.kv_head_stride, dim);
    k = take(hkv * k_head);
    v = take(hkv * v_head);
    q = take(int64_t{m} * hq * dim * 4);
    out = take(int64_t{m} * hq * dim * 4);
    partial = take(PartialFloats(hq, dim, slots) * 4);
    scratch = take(AttentionScratchFloats(hq, hkv, dim) * 4);
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    const AttentionInt8Kernels law = AttentionInt8(Isa::kScalar);
    std::vector<float> some(8191), x(static_cast<size_t>(dim));
    for (float& value : some) value = normal(rng);
    size_t at = 0;
    for (int64_t i = 0; i < int64_t{hkv} * (position + m); ++i) {
      const int64_t head = i / (position + m), slot = i % (position + m);
      for (const bool key : {true, false}) {
        for (float& value : x) value = some[at++ % some.size()];
        uint8_t* to = key ? k.as<uint8_t>() + head * k_head : v.as<uint8_t>() + head * v_head;
        if (type == KvType::kInt8) (key ? law.store_key : law.store_value)(x.data(), dim, slot, to);
        else
          for (int d = 0; d < dim; ++d) reinterpret_cast<uint16_t*>(to)[slot * dim + d] = FloatToHalf(x[static_cast<size_t>(d)]);
      }
    }
    for (int64_t i = 0; i < int64_t{m} * hq * dim; ++i) q.as<float>()[i] = normal(rng);
    a.kv_type = type;
    a.q = q.as<float>();
    a.q_stride = a.out_stride = hq * dim;
    a.k = k.data();
    a.v = v.data();
    a.n_heads = hq;
    a.n_kv_heads = hkv;
    a.head_dim = dim;
    a.m = m;
    a.position = position;
    a.scale = 0.125f;
    a.out = out.as<float>();
  }
};

Isa Tier(int64_t i) { return static_cast<Isa>(i); }
KvType Type(int64_t i) { return static_cast<KvType>(i); }
AttentionKernels Kernels(Isa isa, KvType type) {
  AttentionKernels kernels = Attention(isa);
  if (type != KvType::kInt8) return kernels;
  const AttentionInt8Kernels int8 = AttentionInt8(isa);
  return {int8.prefill, int8.decode, kernels.merge, int8.name};
}
bool Absent(benchmark::State& state, Isa isa) {
  if (Includes(BestIsa(DetectCpu()), isa)) return false;
  state.SkipWithError("this CPU lacks the tier");
  return true;
}

// Args: tier, cache type (0: f16, 2: int8), Hq, Hkv, D, T, window.
void Prefill(benchmark::State& state) {
  const Isa isa = Tier(state.range(0));
  if (Absent(state, isa)) return;
  const int hq = static_cast<int>(state.range(2)), hkv = static_cast<int>(state.range(3)), dim = static_cast<int>(state.range(4));
  const int m = static_cast<int>(state.range(5)), window = static_cast<int>(state.range(6));
  Setup s(Type(state.range(1)), hq, hkv, dim, m, 0, m);
  s.a.window = window;
  const AttentionKernels kernels = Kernels(isa, Type(state.range(1)));
  for (auto _ : state) kernels.prefill(s.a, 0, PrefillItems(s.a), s.scratch.as<float>());
  double pairs = 0;
  for (int i = 0; i < m; ++i) pairs += window > 0 && i + 1 > window ? window : i + 1;
  state.counters["GFLOP/s"] = benchmark::Counter(pairs * hq * 4 * dim * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(kernels.name);
}

// Args: tier, cache type, Hq, Hkv, D, tokens in use, S.
void Decode(benchmark::State& state) {
  const Isa isa = Tier(state.range(0));
  if (Absent(state, isa)) return;
  const KvType type = Type(state.range(1));
  const int hq = static_cast<int>(state.range(2)), hkv = static_cast<int>(state.range(3)), dim = static_cast<int>(state.range(4));
  const int used = static_cast<int>(state.range(5)), slots = static_cast<int>(state.range(6));
  Setup s(type, hq, hkv, dim, 1, used - 1, slots);
  const AttentionKernels kernels = Kernels(isa, type);
  for (auto _ : state) {
    kernels.decode(s.a, 0, DecodeItems(s.a), s.partial.as<float>(), s.scratch.as<float>());
    if (DecodeChunks(s.a) > 1) kernels.merge(s.a, 0, hq, s.partial.as<float>());
  }
  const double slot_bytes = type == KvType::kF16 ? 4.0 * dim : static_cast<double>(KeyTileBytes(dim) + ValueTileBytes(dim)) / kTileSlots;
  state.counters["GB/s"] = benchmark::Counter(slot_bytes * hkv * used * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["keys/us"] = benchmark::Counter(1e-6 * hkv * used, benchmark::Counter::kIsIterationInvariantRate);
  state.SetLabel(kernels.name);
}

// FP32 FMA peak of one core: 12 independent chains. Compare Prefill's GFLOP/s with this line of the same run.
void FmaPeak(benchmark::State& state) {
#if defined(__x86_64__)
  const Isa isa = Tier(state.range(0));
  if (Absent(state, isa)) return;
  constexpr int kChains = 12, kLoops = 1000;
  for (auto _ : state) {
    for (int i = 0; i < kLoops; ++i) {
      if (isa == Isa::kAvx2)
        __asm__ volatile(
            "vfmadd231ps %%ymm0,%%ymm0,%%ymm1\n vfmadd231ps %%ymm0,%%ymm0,%%ymm2\n vfmadd231ps %%ymm0,%%ymm0,%%ymm3\n"
            "vfmadd231ps %%ymm0,%%ymm0,%%ymm4\n vfmadd231ps %%ymm0,%%ymm0,%%ymm5\n vfmadd231ps %%ymm0,%%ymm0,%%ymm6\n"
            "vfmadd231ps %%ymm0,%%ymm0,%%ymm7\n vfmadd231ps %%ymm0,%%ymm0,%%ymm8\n vfmadd231ps %%ymm0,%%ymm0,%%ymm9\n"
            "vfmadd231ps %%ymm0,%%ymm0,%%ymm10\n vfmadd231ps %%ymm0,%%ymm0,%%ymm11\n vfmadd231ps %%ymm0,%%ymm0,%%ymm12\n" ::
                : "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12");
      else
        __asm__ volatile(
            "vfmadd231ps %%zmm0,%%zmm0,%%zmm1\n vfmadd231ps %%zmm0,%%zmm0,%%zmm2\n vfmadd231ps %%zmm0,%%zmm0,%%zmm3\n"
            "vfmadd231ps %%zmm0,%%zmm0,%%zmm4\n vfmadd231ps %%zmm0,%%zmm0,%%zmm5\n vfmadd231ps %%zmm0,%%zmm0,%%zmm6\n"
            "vfmadd231ps %%zmm0,%%zmm0,%%zmm7\n vfmadd231ps %%zmm0,%%zmm0,%%zmm8\n vfmadd231ps %%zmm0,%%zmm0,%%zmm9\n"
            "vfmadd231ps %%zmm0,%%zmm0,%%zmm10\n vfmadd231ps %%zmm0,%%zmm0,%%zmm11\n vfmadd231ps %%zmm0,%%zmm0,%%zmm12\n" ::
                : "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12");
    }
  }
  const double lanes = isa == Isa::kAvx2 ? 8 : 16;
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * lanes * kChains * kLoops, benchmark::Counter::kIsIterationInvariantRate);
#else
  state.SkipWithError("measured on x86-64 only");
#endif
}

constexpr int64_t kScalar = 0, kAvx2 = 1, kAvx512 = static_cast<int64_t>(Isa::kAvx512Vnni);
constexpr int64_t kF16 = static_cast<int64_t>(KvType::kF16), kInt8 = static_cast<int64_t>(KvType::kInt8);
BENCHMARK(FmaPeak)->ArgName("isa")->Arg(kAvx2)->Arg(kAvx512);
BENCHMARK(Prefill)
    ->ArgNames({"isa", "kv", "Hq", "Hkv", "D", "T", "win"})
    ->Args({kScalar, kF16, 1, 1, 64, 128, 0})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {9}, {3}, {64}, {32, 512, 2048}, {0}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {4}, {2}, {80, 96, 128, 256}, {512}, {0}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {4}, {1}, {256}, {2048}, {512}});
BENCHMARK(Decode)
    ->ArgNames({"isa", "kv", "Hq", "Hkv", "D", "used", "S"})
    ->Args({kScalar, kF16, 9, 3, 64, 512, 2048})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {3}, {3}, {64}, {2048}, {2048}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {9}, {3}, {64}, {128, 2048}, {2048, 32768}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {14}, {2}, {64}, {2048}, {2048}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {16}, {2}, {64, 128}, {2048}, {2048}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {4}, {1}, {256}, {2048}, {2048}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {8}, {2}, {96}, {2048}, {2048}})
    ->ArgsProduct({{kAvx2, kAvx512}, {kF16, kInt8}, {32}, {8}, {128}, {16384}, {16384}});

}  // namespace
}  // namespace slm::kernels
