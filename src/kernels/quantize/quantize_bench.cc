// Activation quantization alone and fused, per tier, at the widths of small models. Prints values per second.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/cpu_features.h"
#include "kernels/packed/contract.h"
#include "kernels/packed/table.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {
namespace {

enum Step : int { kPlain, kNorm, kSilu, kGeluTanh, kGeluErf, kSteps };

void QuantizeRows(benchmark::State& state) {
  const Isa isa = static_cast<Isa>(state.range(0));
  const int n = static_cast<int>(state.range(2));
  if (!Includes(BestIsa(DetectCpu()), isa)) return state.SkipWithError("this CPU lacks the tier");
  const QuantizeKernels kernels = Quantize(isa);
  const size_t padded = static_cast<size_t>(PaddedK(n));
  std::vector<float> x(padded), w(padded, 0.5f), scale(padded / 32);
  std::vector<int8_t> q(padded);
  std::vector<int32_t> sum(padded / 32);
  for (size_t i = 0; i < padded; ++i) x[i] = static_cast<float>(i % 31) * 0.4f - 6;
  std::vector<ResidualBlock> residual(padded / 32);
  int32_t residual_count = 0;
  const Q8Row row{q.data(), scale.data(), sum.data(), residual.data(), &residual_count};
  for (auto _ : state) {
    if (state.range(1) == kPlain) kernels.quantize(x.data(), n, row);
    if (state.range(1) == kNorm) kernels.rms_norm_quantize(x.data(), w.data(), 1e-5f, n, nullptr, row);
    if (state.range(1) >= kSilu) kernels.gate_quantize(x.data(), w.data(), static_cast<int>(state.range(1)) - kSilu, n, row);
    benchmark::ClobberMemory();
  }
  constexpr const char* kNames[] = {" plain", " rms_norm", " silu", " gelu_tanh", " gelu_erf"};
  state.SetItemsProcessed(state.iterations() * n);
  state.SetLabel(std::string(kernels.name) + kNames[state.range(1)]);
}
BENCHMARK(QuantizeRows)
    ->ArgNames({"isa", "step", "n"})
    ->ArgsProduct({{static_cast<int>(Isa::kAvx2), static_cast<int>(Isa::kAvx512Vnni)},
                   benchmark::CreateDenseRange(0, kSteps - 1, 1),
                   {576, 2048}});

}  // namespace
}  // namespace slm::kernels
