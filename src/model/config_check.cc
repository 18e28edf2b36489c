// CheckConfig: hyperparameters are the part of a file that an attacker or a bad converter can make absurd while every byte
// of the container is in order. After this file, products such as n_layers * n_kv_heads * head_dim cannot overflow 64 bits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/architectures.h"

namespace slm::model {
namespace {

constexpr const char* kHint = "the file is damaged, or was written by a faulty converter";

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), kHint); }

struct Bound {
  const char* what;
  int value, min, max;
};

bool InRange(double x, double min, double max) { return std::isfinite(x) && x >= min && x <= max; }

Status CheckFactors(const std::vector<float>& f, const char* what, int rotary_dim) {
  if (f.empty()) return Ok();
  if (f.size() != static_cast<size_t>(rotary_dim / 2))
    return Corrupt(fmt::format("{} rope {} factors for {} rotated values; half as many are needed", f.size(), what, rotary_dim));
  if (!std::all_of(f.begin(), f.end(), [](float x) { return InRange(x, 1e-6, 1e9); }))
    return Corrupt(fmt::format("a rope {} factor is not a positive finite number", what));
  return Ok();
}

Status CheckRope(const RopeConfig& r, int head_dim) {
  if (r.rotary_dim < 2 || r.rotary_dim % 2 != 0 || r.rotary_dim > head_dim)
    return Corrupt(fmt::format("{} rotated values per head of width {}: an even number up to the width is needed", r.rotary_dim, head_dim));
  if (!InRange(r.theta, 1.0, 1e18)) return Corrupt(fmt::format("rope base is {}", r.theta));
  if (!InRange(r.factor, 1e-6, 1e9)) return Corrupt(fmt::format("rope scaling factor is {}", r.factor));
  if (!InRange(r.attention_factor, 1e-6, 1e6)) return Corrupt(fmt::format("rope attention factor is {}", r.attention_factor));
  if (r.scaling == RopeScaling::kLlama3) {
    if (!InRange(r.low_freq_factor, 1e-6, 1e6) || !InRange(r.high_freq_factor, 1e-6, 1e6) || r.high_freq_factor <= r.low_freq_factor)
      return Corrupt(
          fmt::format("rope frequency factors {} and {}: the high one must be above the low one", r.low_freq_factor, r.high_freq_factor));
    if (r.original_context < 1) return Corrupt("rope scaling without its original context length");
  }
  if (r.scaling == RopeScaling::kLongRope) {
    if (r.original_context < 1) return Corrupt("rope scaling without its original context length");
    if (r.long_factors.empty() || r.short_factors.empty()) return Corrupt("longrope scaling without its long and short factors");
  }
  SLM_RETURN_IF_ERROR(CheckFactors(r.long_factors, "long", r.rotary_dim));
  SLM_RETURN_IF_ERROR(CheckFactors(r.short_factors, "short", r.rotary_dim));
  return CheckFactors(r.freq_factors, "frequency", r.rotary_dim);
}

Status CheckScalars(const ModelConfig& c) {
  if (!InRange(c.rms_eps, 1e-30, 0.1)) return Corrupt(fmt::format("RMS norm epsilon is {}", c.rms_eps));
  const struct {
    const char* what;
    float value;
  } scalars[] = {{"embedding scale", c.embedding_scale}, {"residual scale", c.residual_scale}, {"logit scale", c.logit_scale}};
  for (const auto& s : scalars)
    if (!InRange(s.value, 1e-9, 1e9)) return Corrupt(fmt::format("{} is {}", s.what, s.value));
  if (!InRange(c.attention_scale, 0, 1e6)) return Corrupt(fmt::format("attention scale is {}", c.attention_scale));
  if (!InRange(c.attention_softcap, 0, 1e9)) return Corrupt(fmt::format("attention softcap is {}", c.attention_softcap));
  if (!InRange(c.logit_softcap, 0, 1e9)) return Corrupt(fmt::format("logit softcap is {}", c.logit_softcap));
  return Ok();
}

// A window that no position of the context ever leaves is no window.
void DropIdleWindow(ModelConfig* c) {
  const bool any = std::find(c->is_local.begin(), c->is_local.end(), 1) != c->is_local.end();
  if (any && c->sliding_window < c->max_context) return;
  if (any && (c->rope_local.theta != c->rope.theta || c->rope_local.scaling != c->rope.scaling))
    return;  // local layers still rotate in their own way
  c->sliding_window = 0;
  c->is_local.clear();
}

}  // namespace

Status CheckSizes(const ModelConfig& c) {
  // Upper limits are an order of magnitude above the largest published dense models.
  const Bound bounds[] = {
      {"vocabulary size", c.vocab_size, 1, 1 << 24},
      {"model width", c.d_model, 1, 1 << 18},
      {"layer count", c.n_layers, 1, 4096},
      {"head count", c.n_heads, 1, 8192},
      {"kv head count", c.n_kv_heads, 1, 8192},
      {"head width", c.head_dim, 1, 8192},
      {"feed-forward width", c.d_ff, 1, 1 << 22},
      {"context length", c.max_context, 1, 1 << 28},
      {"sliding window", c.sliding_window, 0, 1 << 28},
  };
  for (const Bound& b : bounds)
    if (b.value < b.min || b.value > b.max) return Corrupt(fmt::format("{} is {}; {} to {} can be", b.what, b.value, b.min, b.max));
  if (c.n_heads % c.n_kv_heads != 0) return Corrupt(fmt::format("{} heads cannot share {} kv heads evenly", c.n_heads, c.n_kv_heads));
  return Ok();
}

Status CheckConfig(ModelConfig* c) {
  SLM_RETURN_IF_ERROR(CheckSizes(*c));
  SLM_RETURN_IF_ERROR(CheckScalars(*c));
  SLM_RETURN_IF_ERROR(CheckRope(c->rope, c->head_dim));
  const size_t n = static_cast<size_t>(c->n_layers);
  if ((!c->is_local.empty() && c->is_local.size() != n) || (!c->no_rope.empty() && c->no_rope.size() != n))
    return Corrupt("a list of layer types does not have one entry per layer");
  DropIdleWindow(c);
  if (!c->is_local.empty()) SLM_RETURN_IF_ERROR(CheckRope(c->rope_local, c->head_dim));
  if (!c->no_rope.empty() && std::find(c->no_rope.begin(), c->no_rope.end(), 1) == c->no_rope.end()) c->no_rope.clear();
  return Ok();
}

}  // namespace slm::model
