// com.microsoft's GroupQueryAttention: causal attention with a cache of the past, optional rotation, window and soft cap.
// Contract: ONNX Runtime's docs/ContribOperators.md. seqlens_k [B] is the number of keys after this call, less one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attend.h"
#include "reference/microsoft/coded_cache.h"

namespace slm::reference {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

struct Problem {
  Array q, k, v;
  Heads hq, hk;
  const Array *past_key = nullptr, *past_value = nullptr;
  const Array *added = nullptr, *sinks = nullptr;  // attention_bias [B or 1, H or 1, T, S], head_sink [H]
  CodedCache coded;
  Array decoded[2];             // the past of codes
  std::vector<int64_t> totals;  // keys of each sequence after this call
  int64_t window = -1;
  bool causal = true, smooth = false;
  double scale = 0, softcap = 0;
};

// The past of keys (side 0) or values as numbers; nullptr without one.
const Array* Past(const Problem& p, size_t side) {
  const Array* given = side == 0 ? p.past_key : p.past_value;
  return given && p.coded.bits != 0 ? &p.decoded[side] : given;
}

int64_t Longest(const Problem& p) {
  int64_t longest = 0;
  for (const int64_t total : p.totals) longest = std::max(longest, total);
  return longest;
}

// What acts on scores beside the keys.
Status ReadScores(const Call& c, Problem& p) {
  p.causal = c.Int("causal", 1) != 0;
  p.smooth = c.Int("smooth_softmax", 0) == 1;
  p.added = c.Optional(10);
  p.sinks = c.Optional(11);
  if (p.sinks && (!IsFloat(p.sinks->type) || p.sinks->dims != Dims{p.hq.heads})) return Wrong("head_sink does not have one value a head");
  if (!p.added) return Ok();
  const Dims& d = p.added->dims;
  if (!IsFloat(p.added->type) || d.size() != 4 || (d[0] != 1 && d[0] != p.hq.batch) || (d[1] != 1 && d[1] != p.hq.heads) ||
      d[2] != p.hq.tokens || d[3] < Longest(p))
    return Wrong("attention_bias of shape " + onnx::ShapeText(d) + " does not fit the scores");
  return Ok();
}

Result<Problem> ProblemOf(const Call& c) {
  if (c.Int("sliding_window_cache", 0) != 0) return Refuse("GroupQueryAttention with a sliding cache");
  Problem p;
  const int64_t hq = c.Int("num_heads", 0), hk = c.Int("kv_num_heads", 0);
  SLM_ASSIGN_OR_RETURN(const Array* q, c.In(0, Accept::kFloat));
  if (hq < 1 || hk < 1 || hq > 65536 || hk > hq || hq % hk != 0 || q->dims.size() != 3)
    return Wrong("num_heads, kv_num_heads or the query's shape");
  if (c.Optional(1)) {
    SLM_ASSIGN_OR_RETURN(const Array* k, c.In(1, Accept::kFloat));
    SLM_ASSIGN_OR_RETURN(const Array* v, c.In(2, Accept::kFloat));
    p.q = *q, p.k = *k, p.v = *v;
  } else {
    const int64_t width = q->dims[2] / (hq + 2 * hk);
    if (width * (hq + 2 * hk) != q->dims[2]) return Wrong("a packed query of another width");
    SLM_ASSIGN_OR_RETURN(p.q, Columns(*q, 0, hq * width));
    SLM_ASSIGN_OR_RETURN(p.k, Columns(*q, hq * width, hk * width));
    SLM_ASSIGN_OR_RETURN(p.v, Columns(*q, (hq + hk) * width, hk * width));
  }
  SLM_ASSIGN_OR_RETURN(p.hq, HeadsOf(p.q, hq));
  SLM_ASSIGN_OR_RETURN(p.hk, HeadsOf(p.k, hk));
  if (p.k.dims != p.v.dims || p.hk.batch != p.hq.batch || p.hk.tokens != p.hq.tokens || p.hk.width != p.hq.width || p.k.dims.size() != 3 ||
      p.k.type != p.q.type || p.v.type != p.q.type)
    return Wrong("query, key and value do not fit each other");
  SLM_ASSIGN_OR_RETURN(p.coded, CodedCacheOf(c, 12, 13));
  p.past_key = c.Optional(3);
  p.past_value = c.Optional(4);
  for (size_t side = 0; side < 2 && p.coded.bits != 0 && p.past_key && p.past_value; ++side) {
    SLM_ASSIGN_OR_RETURN(p.decoded[side], CacheValues(p.coded, side, *c.Optional(3 + side)));
  }
  SLM_ASSIGN_OR_RETURN(p.totals, c.Ints(5));
  const int64_t past = p.past_key && p.past_key->dims.size() == 4 ? p.past_key->dims[2] : 0;
  const ElementType cache_type = p.coded.bits != 0 ? ElementType::kDouble : p.q.type;
  const Dims cache{p.hk.batch, p.hk.heads, past, p.hk.width};
  for (const Array* a : {Past(p, 0), Past(p, 1)})
    if ((a == nullptr) != (p.past_key == nullptr) || (a && (a->dims != cache || a->type != cache_type)))
      return Wrong("the past does not fit");
  if (static_cast<int64_t>(p.totals.size()) != p.hq.batch) return Wrong("seqlens_k does not have one value a sequence");
  for (int64_t& total : p.totals) {
    if (total < p.hq.tokens - 1 || total >= past + p.hq.tokens)
      return Wrong(fmt::format("seqlens_k {} with {} new tokens and a cache of {}", total, p.hq.tokens, past));
    ++total;
  }
  SLM_RETURN_IF_ERROR(ReadScores(c, p));
  p.window = c.Int("local_window_size", -1);
  p.softcap = c.Float("softcap", 0);
  p.scale = c.Float("scale", 0);
  if (p.scale == 0) p.scale = 1 / std::sqrt(static_cast<double>(p.hq.width));
  return p;
}

// Each head's mean square becomes 1, times a weight of the head's width.
Status NormalizeHeads(Array& x, const Heads& h, const Array& weight, double epsilon) {
  if (!IsFloat(weight.type) || weight.dims != Dims{h.width}) return Wrong("a norm's weight that is not of a head's width");
  for (int64_t begin = 0; begin < x.size(); begin += h.width) {
    double sum = 0;
    for (int64_t d = 0; d < h.width; ++d) sum += Number(x, begin + d) * Number(x, begin + d);
    const double factor = 1 / std::sqrt(sum / static_cast<double>(h.width) + epsilon);
    for (int64_t d = 0; d < h.width; ++d) Set(x, begin + d, Number(x, begin + d) * factor * Number(weight, d));
  }
  return Ok();
}

Status NormalizeBoth(const Call& c, Problem& p) {
  const Array *q = c.Optional(14), *k = c.Optional(15);
  if ((q == nullptr) != (k == nullptr)) return Wrong("q_norm_weight and k_norm_weight belong together");
  if (!q) return Ok();
  const double epsilon = c.Float("qk_norm_epsilon", 1e-6);
  SLM_RETURN_IF_ERROR(NormalizeHeads(p.q, p.hq, *q, epsilon));
  return NormalizeHeads(p.k, p.hk, *k, epsilon);
}

Status RotateBoth(const Call& c, Problem& p) {
  if (c.Int("do_rotary", 0) == 0) return Ok();
  SLM_ASSIGN_OR_RETURN(const Array* cos, c.In(7, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* sin, c.In(8, Accept::kFloat));
  if (cos->dims.empty() || 2 * cos->dims.back() > p.hq.width) return Wrong("the tables of cosines and sines do not fit");
  const Rotation r{cos, sin, 2 * cos->dims.back(), c.Int("rotary_interleaved", 0) != 0};
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < p.hq.batch; ++b)
    for (int64_t t = 0; t < p.hq.tokens; ++t) rows.push_back(p.totals[static_cast<size_t>(b)] - p.hq.tokens + t);
  if (c.Optional(9)) {
    SLM_ASSIGN_OR_RETURN(const auto given, c.Ints(9));
    if (given.size() != rows.size()) return Wrong("as many position_ids as tokens are needed");
    for (size_t k = 1; k < given.size(); ++k)  // ONNX Runtime reads a sequence's first and counts on
      if (static_cast<int64_t>(k) % p.hq.tokens != 0 && given[k] != given[k - 1] + 1)
        return Refuse("position_ids that do not count up by one");
    rows = given;
  }
  SLM_RETURN_IF_ERROR(Rotate(p.q, p.hq, r, rows));
  return Rotate(p.k, p.hk, r, rows);
}

// The cache with the new tokens behind those that each sequence has.
Result<Array> Present(const Problem& p, const Array& fresh, const Array* past) {
  const int64_t before = past ? past->dims[2] : 0, longest = std::max(before, Longest(p));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(fresh.type, {p.hk.batch, p.hk.heads, longest, p.hk.width}));
  const Heads to{Order::kHeadsFirst, p.hk.batch, p.hk.heads, longest, p.hk.width},
      old{Order::kHeadsFirst, p.hk.batch, p.hk.heads, before, p.hk.width};
  for (int64_t b = 0; b < p.hk.batch; ++b) {
    const int64_t begin = p.totals[static_cast<size_t>(b)] - p.hk.tokens;
    for (int64_t head = 0; head < p.hk.heads; ++head)
      for (int64_t d = 0; d < p.hk.width; ++d) {
        for (int64_t t = 0; t < std::min(begin, before); ++t) CopyValue(*past, old.At(b, head, t, d), y, to.At(b, head, t, d));
        for (int64_t t = 0; t < p.hk.tokens; ++t) CopyValue(fresh, p.hk.At(b, head, t, d), y, to.At(b, head, begin + t, d));
      }
  }
  return y;
}

}  // namespace

Result<Arrays> GroupQueryAttention(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Problem p, ProblemOf(c));
  SLM_RETURN_IF_ERROR(NormalizeBoth(c, p));
  SLM_RETURN_IF_ERROR(RotateBoth(c, p));
  SLM_ASSIGN_OR_RETURN(Array keys, Present(p, p.k, Past(p, 0)));
  SLM_ASSIGN_OR_RETURN(Array values, Present(p, p.v, Past(p, 1)));
  Arrays codes(2);
  for (size_t side = 0; side < 2 && p.coded.bits != 0; ++side) {  // the new tokens, too, are read as their codes
    Array& cached = side == 0 ? keys : values;
    SLM_ASSIGN_OR_RETURN(codes[side], CacheCodes(p.coded, side, cached));
    SLM_ASSIGN_OR_RETURN(cached, CacheValues(p.coded, side, codes[side]));
  }
  const Heads cache{Order::kHeadsFirst, p.hk.batch, p.hk.heads, keys.dims[2], p.hk.width};
  Attending a;
  a.q = &p.q, a.k = &keys, a.v = &values;
  a.hq = a.hy = p.hq;
  a.hk = a.hv = cache;
  a.n_keys = Longest(p);
  a.scale = p.scale, a.softcap = p.softcap;
  a.bias = [&p](int64_t b, int64_t head, int64_t t, int64_t s) {
    const int64_t total = p.totals[static_cast<size_t>(b)], position = total - p.hq.tokens + t;
    if (s >= total || (p.causal && (s > position || (p.window > 0 && s <= position - p.window)))) return kHidden;
    if (!p.added) return 0.0;
    const Dims& d = p.added->dims;
    return Number(*p.added, (((d[0] == 1 ? 0 : b) * d[1] + (d[1] == 1 ? 0 : head)) * d[2] + t) * d[3] + s);
  };
  if (p.sinks) a.sink = [&p](int64_t head) { return Number(*p.sinks, head); };
  else if (p.smooth) a.sink = [](int64_t) { return 0.0; };
  if (c.Wants(3)) a.show = c.Int("qk_output", 0) == 1 ? Attending::Show::kScores : Attending::Show::kWeights;
  SLM_ASSIGN_OR_RETURN(Attended done, Attend(c, a, p.q.type, p.q.dims));
  if (p.coded.bits != 0) keys = std::move(codes[0]), values = std::move(codes[1]);
  return Arrays{std::move(done.y), std::move(keys), std::move(values), std::move(done.shown)};
}

}  // namespace slm::reference
