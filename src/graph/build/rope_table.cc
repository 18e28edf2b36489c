// Frequencies in double, tables in f32. The reference (transformers) multiplies position and frequency in f32, which is off by
// up to position * 2^-24 radians (0.008 at 131072 tokens); double costs nothing here, since it runs once at load.
#include "graph/build/rope_table.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace slm::graph {
namespace {

using model::RopeConfig;
using model::RopeScaling;

constexpr size_t kBlock = 64;  // positions between two exact rows of the table

Error Bad(std::string what) {
  return Error(Code::kCorrupt, "rope: " + std::move(what), "the model's configuration is damaged or of an unknown kind");
}

Status CheckDivisors(const std::vector<float>& divisors, size_t half, const char* what) {
  if (divisors.size() != half) return Bad(fmt::format("{} {} for {} rotated pairs", divisors.size(), what, half));
  for (float d : divisors)
    if (!std::isfinite(d) || d <= 0) return Bad(fmt::format("{} holds {}", what, d));
  return Ok();
}

// Llama 3.1: wavelengths longer than original/low are stretched by `factor`, shorter than original/high stay, between them
// a linear blend in (original / wavelength).
double Llama3(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = rope.original_context / wavelength;  // how often the pair turns within the original context
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

Status CheckNumbers(const RopeConfig& rope) {
  if (rope.rotary_dim <= 0 || rope.rotary_dim % 2 != 0) return Bad(fmt::format("rotary dimension {}", rope.rotary_dim));
  if (!std::isfinite(rope.theta) || rope.theta <= 0) return Bad(fmt::format("theta {}", rope.theta));
  if (!std::isfinite(rope.attention_factor)) return Bad(fmt::format("attention factor {}", rope.attention_factor));
  const bool uses_factor = rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kLlama3;
  if (uses_factor && !(std::isfinite(rope.factor) && rope.factor > 0)) return Bad(fmt::format("factor {}", rope.factor));
  const bool uses_original = rope.scaling == RopeScaling::kLongRope || rope.scaling == RopeScaling::kLlama3;
  if (uses_original && rope.original_context <= 0) return Bad(fmt::format("original context {}", rope.original_context));
  if (rope.scaling == RopeScaling::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor))
    return Bad(fmt::format("frequency factors {} and {}", rope.low_freq_factor, rope.high_freq_factor));
  return Ok();
}

}  // namespace

Result<std::vector<double>> RopeFrequencies(const RopeConfig& rope, int context) {
  SLM_RETURN_IF_ERROR(CheckNumbers(rope));
  const size_t half = static_cast<size_t>(rope.rotary_dim) / 2;
  std::vector<double> frequency(half);
  for (size_t i = 0; i < half; ++i) frequency[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.rotary_dim);
  if (rope.scaling == RopeScaling::kLinear)
    for (double& f : frequency) f /= rope.factor;
  if (rope.scaling == RopeScaling::kLlama3)
    for (double& f : frequency) f = Llama3(rope, f);
  if (rope.scaling == RopeScaling::kLongRope) {
    const bool is_long = context > rope.original_context;
    const std::vector<float>& divisors = is_long ? rope.long_factors : rope.short_factors;
    SLM_RETURN_IF_ERROR(CheckDivisors(divisors, half, is_long ? "long factors" : "short factors"));
    for (size_t i = 0; i < half; ++i) frequency[i] /= divisors[i];
  }
  if (!rope.freq_factors.empty()) {
    SLM_RETURN_IF_ERROR(CheckDivisors(rope.freq_factors, half, "frequency factors"));
    for (size_t i = 0; i < half; ++i) frequency[i] /= rope.freq_factors[i];
  }
  return frequency;
}

Result<RopeTable> BuildRopeTable(const RopeConfig& rope, int context) {
  SLM_ASSIGN_OR_RETURN(const std::vector<double> frequency, RopeFrequencies(rope, context));
  const size_t half = frequency.size(), n = static_cast<size_t>(context);
  RopeTable table;
  table.cos.resize(n * half);
  table.sin.resize(n * half);
  // cos and sin of a sum from those of block start and step: four products instead of two library calls, which cost 38 ms a load
  // at 2048 positions of two tables of 128 pairs. Both factors are exact, so errors do not pile up: 2^-51, far below f32.
  std::vector<double> step_cos(kBlock * half), step_sin(kBlock * half);
  for (size_t k = 0; k < kBlock; ++k) {
    for (size_t i = 0; i < half; ++i) {
      step_cos[k * half + i] = std::cos(static_cast<double>(k) * frequency[i]);
      step_sin[k * half + i] = std::sin(static_cast<double>(k) * frequency[i]);
    }
  }
  std::vector<double> start_cos(half), start_sin(half);
  for (size_t p = 0; p < n; ++p) {
    const size_t k = p % kBlock;
    for (size_t i = 0; k == 0 && i < half; ++i) {
      start_cos[i] = std::cos(static_cast<double>(p) * frequency[i]) * rope.attention_factor;
      start_sin[i] = std::sin(static_cast<double>(p) * frequency[i]) * rope.attention_factor;
    }
    const double *kc = &step_cos[k * half], *ks = &step_sin[k * half];
    for (size_t i = 0; i < half; ++i) {
      table.cos[p * half + i] = static_cast<float>(start_cos[i] * kc[i] - start_sin[i] * ks[i]);
      table.sin[p * half + i] = static_cast<float>(start_sin[i] * kc[i] + start_cos[i] * ks[i]);
    }
  }
  return table;
}

}  // namespace slm::graph
