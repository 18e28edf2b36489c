// com.microsoft's MoE and QMoE: each token through the k experts whose router values are largest. Contract: onnxruntime's
// docs/ContribOperators.md; what that leaves open (the GELU is the one by tanh; QMoE takes the softmax of the chosen values only) is what
// its CPU provider does.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "reference/call.h"

namespace slm::reference {
namespace {

enum class Activation : uint8_t { kRelu, kGelu, kSilu, kSwiGlu, kIdentity };

// Weights [E, N, K] of one of the three products in double, with biases [E, N].
struct Experts {
  Array w;
  const Array* bias = nullptr;
};

struct Mixture {
  const Array *x = nullptr, *router = nullptr;
  const Array* mixing = nullptr;  // router_weights, [tokens, E]
  Experts up, down, gate;         // fc1, fc2, fc3
  bool gated = false;
  int64_t tokens = 0, width = 0, experts = 0, chosen = 0, inner = 0;
  Activation activation = Activation::kRelu;
  int64_t fusion = 0;
  double alpha = 1, beta = 0, limit = 0;
  bool limited = false;
};

Result<Activation> ActivationOf(const Call& c) {
  static constexpr std::pair<const char*, Activation> kNames[] = {{"relu", Activation::kRelu},
                                                                  {"gelu", Activation::kGelu},
                                                                  {"silu", Activation::kSilu},
                                                                  {"swiglu", Activation::kSwiGlu},
                                                                  {"identity", Activation::kIdentity}};
  const std::string asked = c.Text("activation_type", "relu");
  for (const auto& [name, activation] : kNames)
    if (asked == name) return activation;
  return Refuse("activation_type '" + asked + "'");
}

Status CheckExperts(const Mixture& m, const Experts& e, int64_t n, int64_t k) {
  if (e.w.dims != Dims{m.experts, n, k} || (e.bias && (!IsFloat(e.bias->type) || e.bias->dims != Dims{m.experts, n})))
    return Wrong("weights or biases of an expert that do not fit");
  return Ok();
}

// Reads what both operators have. `up`, `down` and `gate` are there already.
Status Complete(const Call& c, Mixture& m) {
  SLM_ASSIGN_OR_RETURN(m.x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(m.router, c.In(1, Accept::kFloat));
  if (m.x->dims.size() != 2 && m.x->dims.size() != 3) return Wrong("the input is [tokens, D] or [B, T, D]");
  if (m.up.w.dims.size() != 3 || m.down.w.dims.size() != 3) return Wrong("weights of experts are [E, N, K]");
  m.width = m.x->dims.back();
  m.tokens = m.width > 0 ? m.x->size() / m.width : 0;
  m.experts = m.up.w.dims[0];
  if (m.width < 1 || m.experts < 1 || m.router->dims != Dims{m.tokens, m.experts}) return Wrong("router_probs do not have one row a token");
  if (m.mixing && (!IsFloat(m.mixing->type) || m.mixing->dims != m.router->dims)) return Wrong("router_weights do not fit router_probs");
  m.chosen = c.Int("k", 1);
  if (m.chosen < 1 || m.chosen > m.experts) return Wrong(fmt::format("{} of {} experts", m.chosen, m.experts));
  if (c.Int("use_sparse_mixer", 0) != 0) return Refuse("use_sparse_mixer");
  SLM_ASSIGN_OR_RETURN(m.activation, ActivationOf(c));
  m.fusion = m.activation == Activation::kSwiGlu ? c.Int("swiglu_fusion", 0) : 0;
  if (m.fusion < 0 || m.fusion > 2) return Refuse("swiglu_fusion");
  if (m.activation == Activation::kSwiGlu && m.fusion == 0 && !m.gated) return Wrong("a SwiGLU in two products needs fc3");
  m.alpha = c.Float("activation_alpha", 1);
  m.beta = c.Float("activation_beta", 0);
  m.limited = c.Has("swiglu_limit");
  m.limit = c.Float("swiglu_limit", 0);
  m.inner = m.down.w.dims[2];
  SLM_RETURN_IF_ERROR(CheckExperts(m, m.up, m.fusion == 0 ? m.inner : 2 * m.inner, m.width));
  SLM_RETURN_IF_ERROR(CheckExperts(m, m.down, m.width, m.inner));
  if (m.gated) SLM_RETURN_IF_ERROR(CheckExperts(m, m.gate, m.inner, m.width));
  SLM_ASSIGN_OR_RETURN(const int64_t lines, Count({m.tokens, m.chosen, 4 * std::max<int64_t>(1, m.inner)}));
  return c.Count(lines, m.width);
}

std::vector<double> Through(const Experts& e, int64_t expert, const std::vector<double>& x) {
  const int64_t n = e.w.dims[1], k = e.w.dims[2];
  std::vector<double> y(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    double sum = e.bias ? Number(*e.bias, expert * n + i) : 0;
    for (int64_t j = 0; j < k; ++j) sum += x[static_cast<size_t>(j)] * e.w.f[static_cast<size_t>((expert * n + i) * k + j)];
    y[static_cast<size_t>(i)] = sum;
  }
  return y;
}

double Gated(const Mixture& m, double g, double l) {
  if (m.limited) g = std::min(g, m.limit), l = std::clamp(l, -m.limit, m.limit);
  return g / (1 + std::exp(-m.alpha * g)) * (l + m.beta);
}

double Activated(Activation a, double h) {
  switch (a) {
    case Activation::kRelu: return h < 0 ? 0 : h;
    case Activation::kGelu: return 0.5 * h * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (h + 0.044715 * h * h * h)));
    case Activation::kSilu: return h / (1 + std::exp(-h));
    default: return h;
  }
}

// What the second product reads.
std::vector<double> Inner(const Mixture& m, int64_t expert, const std::vector<double>& x) {
  const std::vector<double> h = Through(m.up, expert, x), other = m.gated ? Through(m.gate, expert, x) : std::vector<double>();
  std::vector<double> y(static_cast<size_t>(m.inner));
  for (size_t i = 0; i < y.size(); ++i) {
    if (m.fusion == 1) y[i] = Gated(m, h[2 * i], h[2 * i + 1]);
    else if (m.fusion == 2) y[i] = Gated(m, h[i], h[y.size() + i]);
    else if (m.activation == Activation::kSwiGlu) y[i] = Gated(m, h[i], other[i]);
    else y[i] = Activated(m.activation, h[i]) * (m.gated ? other[i] : 1);
  }
  return y;
}

enum class Shares : uint8_t { kOfAll, kOfChosen };

// The chosen experts of a token with their shares.
std::vector<std::pair<int64_t, double>> Choose(const Mixture& m, int64_t token, Shares shares, bool normalized) {
  std::vector<int64_t> order(static_cast<size_t>(m.experts));
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int64_t e) { return Number(*m.router, token * m.experts + e); };
  // NaN is chosen last: an order needs every pair to have one.
  const auto rank = [&](int64_t e) { return std::isnan(value(e)) ? -std::numeric_limits<double>::infinity() : value(e); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rank(a) > rank(b); });
  std::vector<double> weights;
  for (const int64_t e : order) weights.push_back(m.mixing ? Number(*m.mixing, token * m.experts + e) : value(e));
  if (m.mixing || shares == Shares::kOfChosen) weights.resize(static_cast<size_t>(m.chosen));
  if (!m.mixing) SoftmaxRow(weights.data(), static_cast<int64_t>(weights.size()));
  weights.resize(static_cast<size_t>(m.chosen));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::pair<int64_t, double>> out;
  for (size_t k = 0; k < weights.size(); ++k) out.emplace_back(order[k], normalized && sum != 0 ? weights[k] / sum : weights[k]);
  return out;
}

Result<Arrays> Mix(const Call& c, const Mixture& m, Shares shares) {
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(m.x->type, m.x->dims));
  const bool normalized = c.Int("normalize_routing_weights", 0) == 1;
  for (int64_t token = 0; token < m.tokens; ++token) {
    const double* row = m.x->f.data() + token * m.width;
    const std::vector<double> x(row, row + m.width);
    std::vector<double> sums(static_cast<size_t>(m.width));
    for (const auto& [expert, share] : Choose(m, token, shares, normalized)) {
      const std::vector<double> made = Through(m.down, expert, Inner(m, expert, x));
      for (size_t d = 0; d < sums.size(); ++d) sums[d] += share * made[d];
    }
    for (size_t d = 0; d < sums.size(); ++d) Set(y, token * m.width + static_cast<int64_t>(d), sums[d]);
  }
  return One(std::move(y));
}

Result<Experts> FloatExperts(const Call& c, size_t weights, size_t bias) {
  SLM_ASSIGN_OR_RETURN(const Array* w, c.In(weights, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(Array wide, CastTo(*w, ElementType::kDouble, Saturate::kYes, ""));
  return Experts{std::move(wide), c.Optional(bias)};
}

struct Places {
  size_t weights, scales, bias, zeros;
  const char* bits;
};

// Codes in bytes [E, N, K * bits / 8], the first in the lowest bits; a scale for each row, or for each block of it.
Result<Experts> CodedExperts(const Call& c, const Places& at) {
  SLM_ASSIGN_OR_RETURN(const Array* codes, c.In(at.weights, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* scales, c.In(at.scales, Accept::kFloat));
  const Array* zeros = c.Optional(at.zeros);
  const int64_t bits = c.Int(at.bits, c.Int("expert_weight_bits", 4)), block = c.Int("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8) return Refuse(fmt::format("codes of {} bits", bits));
  if (codes->type != ElementType::kUint8 || codes->dims.size() != 3 || (zeros && zeros->type != ElementType::kUint8))
    return Wrong("codes are bytes [E, N, K]");
  const int64_t per_byte = 8 / bits, n = codes->dims[1], k = codes->dims[2] * per_byte;
  if (block < 0 || (block > 0 && k % block != 0)) return Wrong("a block size that does not divide the width");
  const int64_t blocks = block > 0 ? k / block : 1;
  if (scales->size() != codes->dims[0] * n * blocks || scales->dims.empty() || scales->dims[0] != codes->dims[0])
    return Wrong("a scale for each block is needed");
  // Zero points are packed along the blocks of a row, or along the rows where a row has one.
  const int64_t run = block > 0 ? blocks : n, run_bytes = (run + per_byte - 1) / per_byte;
  if (zeros && zeros->size() != codes->dims[0] * (block > 0 ? n : 1) * run_bytes) return Wrong("zero points that do not fit the blocks");
  const auto code = [&](const Array& bytes, int64_t begin, int64_t i) {
    return bytes.i[static_cast<size_t>(begin + i / per_byte)] >> (i % per_byte * bits) & ((int64_t{1} << bits) - 1);
  };
  Experts e;
  SLM_ASSIGN_OR_RETURN(e.w, Zeros(ElementType::kDouble, {codes->dims[0], n, k}));
  for (int64_t i = 0; i < e.w.size(); ++i) {
    const int64_t line = i / k, column = i % k, group = line * blocks + (block > 0 ? column / block : 0);
    double zero = static_cast<double>(int64_t{1} << (bits - 1));
    if (zeros) zero = static_cast<double>(code(*zeros, group / run * run_bytes, group % run));
    e.w.f[static_cast<size_t>(i)] = (static_cast<double>(code(*codes, line * codes->dims[2], column)) - zero) * Number(*scales, group);
  }
  e.bias = c.Optional(at.bias);
  return e;
}

}  // namespace

// input, router_probs, then weights and biases of fc1, fc2, fc3
Result<Arrays> MoE(const Call& c) {
  Mixture m;
  SLM_ASSIGN_OR_RETURN(m.up, FloatExperts(c, 2, 3));
  SLM_ASSIGN_OR_RETURN(m.down, FloatExperts(c, 4, 5));
  if (c.Optional(6)) {
    SLM_ASSIGN_OR_RETURN(m.gate, FloatExperts(c, 6, 7));
    m.gated = true;
  }
  SLM_RETURN_IF_ERROR(Complete(c, m));
  return Mix(c, m, Shares::kOfAll);
}

// input, router_probs, codes, scales and biases of fc1, fc2, fc3, their zero points, router_weights
Result<Arrays> QMoE(const Call& c) {
  if (c.Text("quant_type", "int") != "int") return Refuse("quant_type '" + c.Text("quant_type", "") + "'");
  if (c.Int("weights_prepacked", -1) == 1) return Refuse("prepacked weights");
  Mixture m;
  SLM_ASSIGN_OR_RETURN(m.up, CodedExperts(c, {2, 3, 4, 11, "fc1_expert_weight_bits"}));
  SLM_ASSIGN_OR_RETURN(m.down, CodedExperts(c, {5, 6, 7, 12, "fc2_expert_weight_bits"}));
  if (c.Optional(8)) {
    SLM_ASSIGN_OR_RETURN(m.gate, CodedExperts(c, {8, 9, 10, 13, "fc3_expert_weight_bits"}));
    m.gated = true;
  }
  m.mixing = c.Optional(14);
  SLM_RETURN_IF_ERROR(Complete(c, m));
  return Mix(c, m, Shares::kOfChosen);
}

}  // namespace slm::reference
