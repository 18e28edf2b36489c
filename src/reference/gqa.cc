// com.microsoft's GroupQueryAttention: causal attention with a cache of the past, optional rotation, window and soft cap.
// Contract: ONNX Runtime's docs/ContribOperators.md. seqlens_k [B] is the number of keys after this call, less one.
#include <cmath>

#include "reference/call.h"
#include "reference/heads.h"

namespace slm::reference {
namespace {

struct Problem {
  Array q, k, v;
  Heads hq, hk;
  const Array *past_key = nullptr, *past_value = nullptr;
  std::vector<int64_t> totals;  // keys of each sequence after this call
  int64_t window = -1;
  double scale = 0, softcap = 0;
};

// One of three parts of the packed [B, T, (Hq + 2 Hkv) * D].
Result<Array> Unpack(const Array& x, int64_t begin, int64_t width) {
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, {x.dims[0], x.dims[1], width}));
  for (int64_t k = 0; k < y.size(); ++k) CopyValue(x, k / width * x.dims[2] + begin + k % width, y, k);
  return y;
}

Status RefuseRest(const Call& c) {
  for (size_t k = 9; k < 16; ++k)
    if (c.Optional(k)) return Refuse(fmt::format("input {} of GroupQueryAttention", k));
  if (c.Int("smooth_softmax", 0) == 1 || c.Int("qk_output", 0) != 0 || c.Int("kv_cache_bit_width", 0) != 0 || c.Int("causal", 1) == 0 ||
      c.Int("sliding_window_cache", 0) != 0)
    return Refuse("GroupQueryAttention with smooth_softmax, qk_output, a quantized or sliding cache, or without a causal mask");
  return Ok();
}

Result<Problem> ProblemOf(const Call& c) {
  SLM_RETURN_IF_ERROR(RefuseRest(c));
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
    SLM_ASSIGN_OR_RETURN(p.q, Unpack(*q, 0, hq * width));
    SLM_ASSIGN_OR_RETURN(p.k, Unpack(*q, hq * width, hk * width));
    SLM_ASSIGN_OR_RETURN(p.v, Unpack(*q, (hq + hk) * width, hk * width));
  }
  SLM_ASSIGN_OR_RETURN(p.hq, HeadsOf(p.q, hq));
  SLM_ASSIGN_OR_RETURN(p.hk, HeadsOf(p.k, hk));
  if (p.k.dims != p.v.dims || p.hk.batch != p.hq.batch || p.hk.tokens != p.hq.tokens || p.hk.width != p.hq.width || p.k.dims.size() != 3 ||
      p.k.type != p.q.type || p.v.type != p.q.type)
    return Wrong("query, key and value do not fit each other");
  p.past_key = c.Optional(3);
  p.past_value = c.Optional(4);
  SLM_ASSIGN_OR_RETURN(p.totals, c.Ints(5));
  const int64_t past = p.past_key && p.past_key->dims.size() == 4 ? p.past_key->dims[2] : 0;
  const Dims cache{p.hk.batch, p.hk.heads, past, p.hk.width};
  for (const Array* a : {p.past_key, p.past_value})
    if ((a == nullptr) != (p.past_key == nullptr) || (a && (a->dims != cache || a->type != p.q.type)))
      return Wrong("the past does not fit");
  if (static_cast<int64_t>(p.totals.size()) != p.hq.batch) return Wrong("seqlens_k does not have one value a sequence");
  for (int64_t& total : p.totals) {
    if (total < p.hq.tokens - 1 || total >= past + p.hq.tokens)
      return Wrong(fmt::format("seqlens_k {} with {} new tokens and a cache of {}", total, p.hq.tokens, past));
    ++total;
  }
  p.window = c.Int("local_window_size", -1);
  p.softcap = c.Float("softcap", 0);
  p.scale = c.Float("scale", 0);
  if (p.scale == 0) p.scale = 1 / std::sqrt(static_cast<double>(p.hq.width));
  return p;
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
  SLM_RETURN_IF_ERROR(Rotate(p.q, p.hq, r, rows));
  return Rotate(p.k, p.hk, r, rows);
}

// The cache with the new tokens behind those that each sequence has.
Result<Array> Present(const Problem& p, const Array& fresh, const Array* past) {
  const int64_t before = past ? past->dims[2] : 0;
  int64_t longest = before;
  for (const int64_t total : p.totals) longest = std::max(longest, total);
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
  SLM_RETURN_IF_ERROR(RotateBoth(c, p));
  SLM_ASSIGN_OR_RETURN(Array keys, Present(p, p.k, p.past_key));
  SLM_ASSIGN_OR_RETURN(Array values, Present(p, p.v, p.past_value));
  const Heads cache{Order::kHeadsFirst, p.hk.batch, p.hk.heads, keys.dims[2], p.hk.width};
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(p.q.type, p.q.dims));
  SLM_RETURN_IF_ERROR(c.Count(y.size(), keys.dims[2]));
  std::vector<double> row;
  for (int64_t b = 0; b < p.hq.batch; ++b)
    for (int64_t head = 0; head < p.hq.heads; ++head)
      for (int64_t t = 0; t < p.hq.tokens; ++t) {
        const int64_t kv_head = head / (p.hq.heads / p.hk.heads), position = p.totals[static_cast<size_t>(b)] - p.hq.tokens + t;
        const int64_t begin = p.window > 0 ? std::max<int64_t>(0, position + 1 - p.window) : 0;
        row.assign(static_cast<size_t>(position + 1 - begin), 0);
        for (int64_t s = begin; s <= position; ++s) {
          double score = 0;
          for (int64_t d = 0; d < p.hq.width; ++d) score += Number(p.q, p.hq.At(b, head, t, d)) * Number(keys, cache.At(b, kv_head, s, d));
          score *= p.scale;
          row[static_cast<size_t>(s - begin)] = p.softcap > 0 ? p.softcap * std::tanh(score / p.softcap) : score;
        }
        SoftmaxRow(row.data(), static_cast<int64_t>(row.size()));
        for (int64_t d = 0; d < p.hq.width; ++d) {
          double sum = 0;
          for (int64_t s = begin; s <= position; ++s)
            sum += row[static_cast<size_t>(s - begin)] * Number(values, cache.At(b, kv_head, s, d));
          Set(y, p.hq.At(b, head, t, d), sum);
        }
      }
  return Arrays{std::move(y), std::move(keys), std::move(values)};
}

}  // namespace slm::reference
