// What hybrid language models have beside attention: LinearAttention (a state [D, D] a head, keys by values, that decays and is corrected)
// and CausalConvWithState (a short convolution over the last values of each channel).
#include <cmath>

#include "reference/call.h"
#include "reference/heads.h"

namespace slm::reference {
namespace {

struct Problem {
  const Array *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr, *beta = nullptr;
  Heads hq, hk, hv;
  Array state;  // [B, Hkv, D, D], the last that of the values; double
  ElementType state_type = ElementType::kFloat;
  double scale = 1;
};

Status CheckGate(const Array* gate, const Heads& h, const std::string& rule, std::string_view name, std::initializer_list<int64_t> widths) {
  const bool wanted = rule == name || rule == "gated_delta";
  if (wanted != (gate != nullptr)) return Wrong("update_rule '" + rule + "' and the inputs do not fit");
  if (!gate) return Ok();
  if (!IsFloat(gate->type) || gate->dims.size() != 3 || gate->dims[0] != h.batch || gate->dims[1] != h.tokens)
    return Wrong("decay or beta do not fit");
  for (const int64_t w : widths)
    if (gate->dims[2] == w) return Ok();
  return Wrong("decay or beta do not fit");
}

Result<Problem> ProblemOf(const Call& c) {
  Problem p;
  SLM_ASSIGN_OR_RETURN(p.q, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(p.k, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(p.v, c.In(2, Accept::kFloat));
  for (const Array* a : {p.q, p.k, p.v})
    if (a->dims.size() != 3) return Wrong("queries, keys and values are [B, T, H * D]");
  SLM_ASSIGN_OR_RETURN(p.hq, HeadsOf(*p.q, c.Int("q_num_heads", 0)));
  SLM_ASSIGN_OR_RETURN(p.hk, HeadsOf(*p.k, c.Int("kv_num_heads", 0)));
  SLM_ASSIGN_OR_RETURN(p.hv, HeadsOf(*p.v, c.Int("kv_num_heads", 0)));
  if (p.hk.batch != p.hq.batch || p.hk.tokens != p.hq.tokens || p.hk.width != p.hq.width || p.hv.batch != p.hk.batch ||
      p.hv.tokens != p.hk.tokens || p.hq.heads % p.hk.heads != 0)
    return Wrong("queries, keys and values do not fit each other");
  if (c.Int("state_window", 0) != 0) return Refuse("state_window");
  const std::string rule = c.Text("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta") return Refuse("update_rule '" + rule + "'");
  p.decay = c.Optional(4);
  p.beta = c.Optional(5);
  SLM_RETURN_IF_ERROR(CheckGate(p.decay, p.hk, rule, "gated", {p.hk.heads, p.hk.heads * p.hk.width}));
  SLM_RETURN_IF_ERROR(CheckGate(p.beta, p.hk, rule, "delta", {p.hk.heads, 1}));
  const Dims dims{p.hk.batch, p.hk.heads, p.hk.width, p.hv.width};
  SLM_ASSIGN_OR_RETURN(p.state, Zeros(ElementType::kDouble, dims));
  SLM_RETURN_IF_ERROR(c.Count(p.state.size() * (p.hq.heads / p.hk.heads + 2), p.hk.tokens));
  p.state_type = p.q->type;
  if (const Array* past = c.Optional(3)) {
    if (past->dims != dims || !IsFloat(past->type)) return Wrong("the past state does not fit");
    p.state.f = past->f;
    p.state_type = past->type;
  }
  p.scale = c.Float("scale", 0);
  if (p.scale == 0) p.scale = 1 / std::sqrt(static_cast<double>(p.hk.width));
  return p;
}

// state <- decayed state + key (outer) value, the value less what the state already says when the rule corrects.
void Update(Problem& p, double* state, int64_t b, int64_t head, int64_t t) {
  const int64_t d_k = p.hk.width, d_v = p.hv.width, row = b * p.hk.tokens + t;
  if (p.decay)
    for (int64_t d = 0; d < d_k; ++d) {
      const int64_t at = p.decay->dims[2] == p.hk.heads ? row * p.hk.heads + head : (row * p.hk.heads + head) * d_k + d;
      for (int64_t m = 0; m < d_v; ++m) state[d * d_v + m] *= std::exp(Number(*p.decay, at));
    }
  for (int64_t m = 0; m < d_v; ++m) {
    double value = Number(*p.v, p.hv.At(b, head, t, m));
    if (p.beta) {
      for (int64_t d = 0; d < d_k; ++d) value -= state[d * d_v + m] * Number(*p.k, p.hk.At(b, head, t, d));
      value *= Number(*p.beta, p.beta->dims[2] == 1 ? row : row * p.hk.heads + head);
    }
    for (int64_t d = 0; d < d_k; ++d) state[d * d_v + m] += Number(*p.k, p.hk.At(b, head, t, d)) * value;
  }
}

}  // namespace

Result<Arrays> LinearAttention(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Problem p, ProblemOf(c));
  const int64_t d_k = p.hk.width, d_v = p.hv.width, group = p.hq.heads / p.hk.heads;
  Heads out = p.hq;
  out.width = d_v;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(p.q->type, {out.batch, out.tokens, out.heads * d_v}));
  for (int64_t b = 0; b < out.batch; ++b)
    for (int64_t t = 0; t < out.tokens; ++t)
      for (int64_t head = 0; head < out.heads; ++head) {
        double* state = p.state.f.data() + (b * p.hk.heads + head / group) * d_k * d_v;
        if (head % group == 0) Update(p, state, b, head / group, t);
        for (int64_t m = 0; m < d_v; ++m) {
          double sum = 0;
          for (int64_t d = 0; d < d_k; ++d) sum += Number(*p.q, p.hq.At(b, head, t, d)) * state[d * d_v + m];
          Set(y, out.At(b, head, t, m), p.scale * sum);
        }
      }
  SLM_ASSIGN_OR_RETURN(Array present, CastTo(p.state, p.state_type, Saturate::kYes, ""));
  return Arrays{std::move(y), std::move(present)};
}

// x [batch, channels, tokens], weight [channels, 1, taps], bias [channels], past [batch, channels, taps - 1]
Result<Arrays> CausalConvWithState(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* w, c.In(1, Accept::kFloat));
  const Array *bias = c.Optional(2), *past = c.Optional(3);
  const std::string activation = c.Text("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") return Refuse("activation '" + activation + "'");
  if (x->dims.size() != 3 || w->dims.size() != 3 || w->dims[1] != 1 || w->dims[0] != x->dims[1] || w->dims[2] < 1)
    return Wrong("input and weight do not fit");
  // What com.microsoft's has beside ONNX's.
  if (c.Int("ndim", 1) != 1 || c.Int("channels_last", 0) != 0 || c.Int("state_window", 0) != 0)
    return Refuse("CausalConvWithState with ndim, channels_last or state_window");
  const int64_t channels = x->dims[1], n = x->dims[2], kernel = w->dims[2], dilation = c.Int("dilation", 1);
  if (dilation < 1 || dilation > kMaxValues) return Wrong("the dilation");
  const int64_t before = (kernel - 1) * dilation;
  if ((bias && (bias->dims != Dims{channels} || !IsFloat(bias->type))) ||
      (past && (past->dims != Dims{x->dims[0], channels, before} || past->type != x->type)))
    return Wrong("bias or past do not fit");
  SLM_RETURN_IF_ERROR(c.Count(x->size(), kernel));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, x->dims));
  SLM_ASSIGN_OR_RETURN(Array present, Zeros(x->type, {x->dims[0], channels, before}));
  for (int64_t line = 0; line < x->dims[0] * channels; ++line) {
    const auto at = [&](int64_t t) { return t >= 0 ? Number(*x, line * n + t) : past ? Number(*past, line * before + before + t) : 0; };
    for (int64_t t = 0; t < n; ++t) {
      double sum = bias ? Number(*bias, line % channels) : 0;
      for (int64_t k = 0; k < kernel; ++k) sum += at(t - before + k * dilation) * Number(*w, line % channels * kernel + k);
      sum = RoundTo(x->type, sum);
      Set(y, line * n + t, activation == "none" ? sum : sum / (1 + std::exp(-sum)));
    }
    for (int64_t k = 0; k < before; ++k) Set(present, line * before + k, at(n - before + k));
  }
  return Arrays{std::move(y), std::move(present)};
}

}  // namespace slm::reference
