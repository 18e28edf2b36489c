// ONNX's Attention (operator sets 23 to 26): scaled products, soft cap, mask, softmax, weighted sum; with grouped heads, a cache that is
// concatenated (past) or kept outside (nonpad_kv_seqlen), and sliding windows.
#include <cmath>
#include <limits>

#include "reference/call.h"
#include "reference/heads.h"

namespace slm::reference {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

struct Problem {
  const Array* q = nullptr;
  Array k, v;  // [B, Hkv, S, D] with the past
  Heads hq, hk, hv;
  const Array* mask = nullptr;
  const Array* lengths = nullptr;  // nonpad_kv_seqlen [B]
  int64_t past = 0, left = -1, right = -1, mode = 0;
  bool causal = false;
  double scale = 1, softcap = 0;
  ElementType precision = ElementType::kFloat;
};

// x as [B, H, T, D], behind `past` of that layout.
Result<Array> WithPast(const Array& x, const Heads& h, const Array* past) {
  const int64_t before = past ? past->dims[2] : 0;
  if (past && (past->dims[0] != h.batch || past->dims[1] != h.heads || past->dims[3] != h.width || past->type != x.type))
    return Wrong("the past does not fit");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, {h.batch, h.heads, before + h.tokens, h.width}));
  const Heads to{Order::kHeadsFirst, h.batch, h.heads, before + h.tokens, h.width};
  const Heads old{Order::kHeadsFirst, h.batch, h.heads, before, h.width};
  for (int64_t b = 0; b < h.batch; ++b)
    for (int64_t head = 0; head < h.heads; ++head)
      for (int64_t t = 0; t < before + h.tokens; ++t)
        for (int64_t d = 0; d < h.width; ++d) {
          if (t < before) CopyValue(*past, old.At(b, head, t, d), y, to.At(b, head, t, d));
          else CopyValue(x, h.At(b, head, t - before, d), y, to.At(b, head, t, d));
        }
  return y;
}

Status CheckMask(const Problem& p) {
  if (!p.mask) return Ok();
  const Dims scores{p.hq.batch, p.hq.heads, p.hq.tokens, p.k.dims[2]};
  Dims mask = p.mask->dims;
  if (mask.empty() || mask.size() > 4 || (!IsBool(p.mask->type) && !IsFloat(p.mask->type))) return Wrong("the mask");
  if (mask.back() > scores.back()) return Wrong("a mask that is longer than the keys");
  mask.back() = scores.back();  // what is missing is masked
  SLM_ASSIGN_OR_RETURN(const Dims joined, BroadcastShape(mask, scores));
  return joined == scores ? Ok() : Status(Wrong("the mask does not fit the scores"));
}

Result<Problem> ProblemOf(const Call& c) {
  Problem p;
  SLM_ASSIGN_OR_RETURN(p.q, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* k, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* v, c.In(2, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(p.hq, HeadsOf(*p.q, c.Int("q_num_heads", 0)));
  SLM_ASSIGN_OR_RETURN(p.hk, HeadsOf(*k, c.Int("kv_num_heads", 0)));
  SLM_ASSIGN_OR_RETURN(p.hv, HeadsOf(*v, c.Int("kv_num_heads", 0)));
  if (p.hk.batch != p.hq.batch || p.hk.width != p.hq.width || p.hv.batch != p.hk.batch || p.hv.heads != p.hk.heads ||
      p.hv.tokens != p.hk.tokens || p.hk.heads < 1 || p.hq.heads % p.hk.heads != 0 || k->type != p.q->type)
    return Wrong("queries, keys and values do not fit each other");
  p.mask = c.Optional(3);
  const Array *past_key = c.Optional(4), *past_value = c.Optional(5);
  if ((past_key == nullptr) != (past_value == nullptr)) return Wrong("past keys and past values belong together");
  if (past_key) {
    if (past_key->dims.size() != 4 || past_value->dims.size() != 4 || past_value->dims[2] != past_key->dims[2])
      return Wrong("the past does not fit");
    p.past = past_key->dims[2];
  }
  SLM_ASSIGN_OR_RETURN(p.k, WithPast(*k, p.hk, past_key));
  SLM_ASSIGN_OR_RETURN(p.v, WithPast(*v, p.hv, past_value));
  p.lengths = c.Optional(6);
  if (p.lengths && (p.lengths->dims != Dims{p.hq.batch} || IsFloat(p.lengths->type) || past_key)) return Wrong("nonpad_kv_seqlen");
  p.causal = c.Int("is_causal", 0) != 0;
  p.left = c.Int("left_window_size", -1);
  p.right = c.Int("right_window_size", -1);
  p.mode = c.Int("qk_matmul_output_mode", 0);
  p.softcap = c.Float("softcap", 0);
  // Queries and keys are both multiplied by the root, rounded to their type.
  p.scale = RoundTo(p.q->type, std::sqrt(c.Float("scale", 1 / std::sqrt(static_cast<double>(p.hq.width)))));
  SLM_ASSIGN_OR_RETURN(p.precision, c.Type("softmax_precision", p.q->type));
  SLM_RETURN_IF_ERROR(CheckMask(p));
  return p;
}

// What is added to a score: 0, -inf, or the mask's value.
double Bias(const Problem& p, const Dims& mask_strides, int64_t b, int64_t head, int64_t t, int64_t s) {
  double bias = 0;
  if (p.mask && s >= p.mask->dims.back()) return kMasked;
  if (p.mask) {
    const int64_t at = b * mask_strides[0] + head * mask_strides[1] + t * mask_strides[2] + s * mask_strides[3];
    if (IsBool(p.mask->type)) bias = p.mask->i[static_cast<size_t>(at)] != 0 ? 0 : kMasked;
    else bias = p.mask->f[static_cast<size_t>(at)];
  }
  const int64_t length = p.lengths ? p.lengths->i[static_cast<size_t>(b)] : 0;
  const int64_t position = t + (p.lengths ? length - p.hq.tokens : p.past);  // of the query among the keys
  const bool hidden = (p.causal && s > position) || (p.left >= 0 && position - s > p.left) || (p.right >= 0 && s - position > p.right) ||
                      (p.lengths && s >= length);
  return hidden ? kMasked : bias;
}

}  // namespace

Result<Arrays> Attention(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Problem p, ProblemOf(c));
  const int64_t n_keys = p.k.dims[2], group = p.hq.heads / p.hk.heads;
  const ElementType type = p.q->type;
  const Heads keys{Order::kHeadsFirst, p.hk.batch, p.hk.heads, n_keys, p.hk.width},
      values{Order::kHeadsFirst, p.hk.batch, p.hk.heads, n_keys, p.hv.width};
  Heads out = p.hq;
  out.width = p.hv.width;
  Dims dims = p.hq.order == Order::kHeadsFirst ? Dims{out.batch, out.heads, out.tokens, out.width}
                                               : Dims{out.batch, out.tokens, out.heads * out.width};
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, std::move(dims)));
  SLM_ASSIGN_OR_RETURN(Array shown, Zeros(type, {out.batch, out.heads, out.tokens, n_keys}));  // qk_matmul_output
  SLM_RETURN_IF_ERROR(c.Count(shown.size(), p.hq.width + p.hv.width));
  Dims mask_strides(4);
  if (p.mask) mask_strides = BroadcastStrides(p.mask->dims, {out.batch, out.heads, out.tokens, n_keys});
  std::vector<double> row(static_cast<size_t>(n_keys));
  const Lanes rows{out.batch * out.heads, out.tokens, 1};
  for (int64_t line = 0; line < rows.outer * rows.n; ++line) {
    const int64_t b = line / out.tokens / out.heads, head = line / out.tokens % out.heads, t = line % out.tokens, kv_head = head / group;
    bool any = false;
    for (int64_t s = 0; s < n_keys; ++s) {
      double score = 0;
      for (int64_t d = 0; d < p.hq.width; ++d)
        score +=
            RoundTo(type, Number(*p.q, p.hq.At(b, head, t, d)) * p.scale) * RoundTo(type, Number(p.k, keys.At(b, kv_head, s, d)) * p.scale);
      score = RoundTo(type, score);
      if (p.mode == 0) Set(shown, line * n_keys + s, score);
      if (p.softcap > 0) score = RoundTo(type, std::tanh(score / p.softcap) * p.softcap);
      if (p.mode == 1) Set(shown, line * n_keys + s, score);
      const double bias = Bias(p, mask_strides, b, head, t, s);
      any = any || bias != kMasked;
      score = RoundTo(type, score + bias);
      if (p.mode == 2) Set(shown, line * n_keys + s, score);
      row[static_cast<size_t>(s)] = RoundTo(p.precision, score);
    }
    if (any) SoftmaxRow(row.data(), n_keys);
    else std::fill(row.begin(), row.end(), 0.0);  // nothing to attend to: zeros
    for (int64_t s = 0; s < n_keys; ++s) {
      double& weight = row[static_cast<size_t>(s)];
      weight = RoundTo(type, RoundTo(p.precision, weight));
      if (p.mode == 3) Set(shown, line * n_keys + s, weight);
    }
    for (int64_t d = 0; d < out.width; ++d) {
      double sum = 0;
      for (int64_t s = 0; s < n_keys; ++s)
        if (row[static_cast<size_t>(s)] != 0) sum += row[static_cast<size_t>(s)] * Number(p.v, values.At(b, kv_head, s, d));
      Set(y, out.At(b, head, t, d), sum);
    }
  }
  return Arrays{std::move(y), p.k, p.v, std::move(shown)};
}

}  // namespace slm::reference
