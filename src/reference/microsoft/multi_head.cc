// com.microsoft's MultiHeadAttention, Attention and QAttention, after onnxruntime's docs/ContribOperators.md.
#include <cmath>

#include "reference/attend.h"

namespace slm::reference {
namespace {

constexpr int64_t kMostHeads = 65536;

// What the three operators have become once queries, keys and values are there.
struct Projected {
  Array q, k, v;  // the new tokens
  Heads hq, hk, hv;
  const Array *past_key = nullptr, *past_value = nullptr;
  int64_t past = 0;  // rows of the past that count
  KeyMask mask;
};
struct Answer {
  Array y, keys, values, scores;
};

Result<Answer> Answered(const Call& c, Projected& p) {
  const int64_t total = p.past + p.hk.tokens;
  if (p.hk.batch != p.hq.batch || p.hv.batch != p.hq.batch || p.hk.heads != p.hq.heads || p.hv.heads != p.hq.heads ||
      p.hk.width != p.hq.width || p.hv.tokens != p.hk.tokens || p.k.type != p.q.type || p.v.type != p.q.type)
    return Wrong("queries, keys and values do not fit each other");
  if ((p.past_key == nullptr) != (p.past_value == nullptr)) return Wrong("past keys and past values belong together");
  p.mask.causal = c.Int("unidirectional", 0) == 1;  // as ONNX Runtime reads it
  if (p.mask.causal && p.hk.tokens != p.hq.tokens) return Refuse("unidirectional with other tokens in the keys than in the queries");
  p.mask.filter = c.Float("mask_filter_value", -10000);
  p.mask.batch = p.hq.batch, p.mask.heads = p.hq.heads, p.mask.tokens = p.hq.tokens, p.mask.keys = total, p.mask.past = p.past;
  SLM_RETURN_IF_ERROR(CheckKeyMask(p.mask));
  Answer out;
  SLM_ASSIGN_OR_RETURN(out.keys, JoinPast(p.k, p.hk, p.past_key, p.past));
  SLM_ASSIGN_OR_RETURN(out.values, JoinPast(p.v, p.hv, p.past_value, p.past));
  const int64_t rows = out.keys.dims[2];
  if (out.values.dims[2] != rows) return Wrong("the past does not fit");
  Attending a;
  a.q = &p.q, a.k = &out.keys, a.v = &out.values;
  a.hq = p.hq;
  a.hk = {Order::kHeadsFirst, p.hk.batch, p.hk.heads, rows, p.hk.width};
  a.hv = {Order::kHeadsFirst, p.hv.batch, p.hv.heads, rows, p.hv.width};
  a.hy = {Order::kTokensFirst, p.hq.batch, p.hq.heads, p.hq.tokens, p.hv.width};
  a.n_keys = total;
  a.scale = c.Float("scale", 0);
  if (a.scale == 0) a.scale = 1 / std::sqrt(static_cast<double>(p.hq.width));
  const KeyMask& mask = p.mask;
  a.bias = [&mask](int64_t b, int64_t head, int64_t t, int64_t s) { return KeyBias(mask, b, head, t, s); };
  if (c.Wants(3)) a.show = Attending::Show::kScores;
  SLM_ASSIGN_OR_RETURN(Attended done, Attend(c, a, p.q.type, {p.hq.batch, p.hq.tokens, p.hq.heads * p.hv.width}));
  out.y = std::move(done.y);
  out.scores = std::move(done.shown);
  return out;
}

Result<int64_t> HeadsAsked(const Call& c) {
  const int64_t n = c.Int("num_heads", 0);
  if (n < 1 || n > kMostHeads) return Wrong("num_heads");
  return n;
}

// Rows of a buffer that count: all of it, or as many as the input says.
Result<int64_t> RowsOfPast(const Call& c, const Array* past, size_t length) {
  const int64_t room = past && past->dims.size() == 4 ? past->dims[2] : 0;
  if (!c.Optional(length)) return room;
  SLM_ASSIGN_OR_RETURN(const auto given, c.Ints(length));
  if (given.size() != 1 || given[0] < 0 || given[0] > room) return Wrong("past_sequence_length");
  return given[0];
}

// Input q, k, v in their three layouts; biases are those of flat ones only.
Status ReadParts(const Call& c, int64_t n_heads, Projected& p) {
  SLM_ASSIGN_OR_RETURN(const Array* q, c.In(0, Accept::kFloat));
  const Array *k = c.Optional(1), *v = c.Optional(2), *bias = c.Optional(3);
  bool flat = true;
  if (!k) {
    SLM_ASSIGN_OR_RETURN(p.q, UnpackHeads(*q, 0, 3));
    SLM_ASSIGN_OR_RETURN(p.k, UnpackHeads(*q, 1, 3));
    SLM_ASSIGN_OR_RETURN(p.v, UnpackHeads(*q, 2, 3));
  } else if (!v) {
    p.q = *q;
    SLM_ASSIGN_OR_RETURN(p.k, UnpackHeads(*k, 0, 2));
    SLM_ASSIGN_OR_RETURN(p.v, UnpackHeads(*k, 1, 2));
  } else {
    p.q = *q, p.k = *k, p.v = *v;
    flat = k->dims.size() == 3;
  }
  if (p.q.dims.size() != 3 || p.k.dims.size() != p.v.dims.size()) return Wrong("queries, keys and values do not fit each other");
  SLM_ASSIGN_OR_RETURN(p.hq, HeadsOf(p.q, n_heads));
  SLM_ASSIGN_OR_RETURN(p.hk, HeadsOf(p.k, n_heads));
  SLM_ASSIGN_OR_RETURN(p.hv, HeadsOf(p.v, n_heads));
  if (!IsFloat(p.k.type) || !IsFloat(p.v.type)) return Refuse("keys or values that are not floating");
  if (!bias) return Ok();
  SLM_RETURN_IF_ERROR(AddColumns(p.q, *bias, 0));
  if (!flat) return Ok();  // keys that were projected before have theirs
  SLM_RETURN_IF_ERROR(AddColumns(p.k, *bias, p.q.dims[2]));
  return AddColumns(p.v, *bias, p.q.dims[2] + p.k.dims[2]);
}

// One half of past [2, B, H, S, D].
Result<Array> Half(const Array& both, int64_t at) {
  if (both.dims.size() != 5 || both.dims[0] != 2) return Wrong("a past of shape " + onnx::ShapeText(both.dims));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(both.type, Dims(both.dims.begin() + 1, both.dims.end())));
  for (int64_t k = 0; k < y.size(); ++k) CopyValue(both, at * y.size() + k, y, k);
  return y;
}

// The three products side by side, then as MultiHeadAttention. `inputs`: mask, past, attention_bias, past_sequence_length.
Result<Arrays> FromProduct(const Call& c, const Array& product, const Dims& widths, const size_t (&inputs)[4]) {
  SLM_ASSIGN_OR_RETURN(const int64_t n_heads, HeadsAsked(c));
  if (c.Int("do_rotary", 0) != 0) return Refuse("do_rotary");
  Projected p;
  SLM_ASSIGN_OR_RETURN(p.q, Columns(product, 0, widths[0]));
  SLM_ASSIGN_OR_RETURN(p.k, Columns(product, widths[0], widths[1]));
  SLM_ASSIGN_OR_RETURN(p.v, Columns(product, widths[0] + widths[1], widths[2]));
  SLM_ASSIGN_OR_RETURN(p.hq, HeadsOf(p.q, n_heads));
  SLM_ASSIGN_OR_RETURN(p.hk, HeadsOf(p.k, n_heads));
  SLM_ASSIGN_OR_RETURN(p.hv, HeadsOf(p.v, n_heads));
  Array past_key, past_value;
  if (const Array* past = c.Optional(inputs[1])) {
    SLM_ASSIGN_OR_RETURN(past_key, Half(*past, 0));
    SLM_ASSIGN_OR_RETURN(past_value, Half(*past, 1));
    p.past_key = &past_key, p.past_value = &past_value;
  }
  SLM_ASSIGN_OR_RETURN(p.past, RowsOfPast(c, p.past_key, inputs[3]));
  p.mask.mask = c.Optional(inputs[0]);
  p.mask.added = c.Optional(inputs[2]);
  SLM_ASSIGN_OR_RETURN(Answer a, Answered(c, p));
  if (!c.Wants(1)) return One(std::move(a.y));
  if (a.keys.dims != a.values.dims) return Wrong("a present of keys and values of different widths");
  Dims dims = a.keys.dims;
  dims.insert(dims.begin(), 2);
  SLM_ASSIGN_OR_RETURN(Array present, Zeros(a.keys.type, dims));
  for (int64_t k = 0; k < a.keys.size(); ++k) {
    CopyValue(a.keys, k, present, k);
    CopyValue(a.values, k, present, a.keys.size() + k);
  }
  return Arrays{std::move(a.y), std::move(present)};
}

constexpr size_t kNone = 99;  // an input that the operator does not have

}  // namespace

// query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value, past_sequence_length
Result<Arrays> MultiHeadAttention(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const int64_t n_heads, HeadsAsked(c));
  if (c.Optional(9)) return Refuse("a cache of beams (cache_indirection)");
  Projected p;
  SLM_RETURN_IF_ERROR(ReadParts(c, n_heads, p));
  p.mask.mask = c.Optional(4);
  p.mask.added = c.Optional(5);
  p.past_key = c.Optional(6);
  p.past_value = c.Optional(7);
  SLM_ASSIGN_OR_RETURN(p.past, RowsOfPast(c, p.past_key, 8));
  SLM_ASSIGN_OR_RETURN(Answer a, Answered(c, p));
  return Arrays{std::move(a.y), std::move(a.keys), std::move(a.values), std::move(a.scores)};
}

// input, weights, bias, mask_index, past, attention_bias, past_sequence_length
Result<Arrays> AttentionMs(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* w, c.In(1, Accept::kFloat));
  if (x->dims.size() != 3 || w->dims.size() != 2 || w->type != x->type)
    return Wrong("input and weights are [B, T, D] and [D, N] of a type");
  Dims widths = c.IntList("qkv_hidden_sizes");
  if (widths.empty()) widths = Dims(3, w->dims[1] / 3);
  if (widths.size() != 3 || widths[0] < 0 || widths[1] < 0 || widths[2] < 0 || widths[0] > kMaxValues || widths[1] > kMaxValues ||
      widths[2] > kMaxValues || widths[0] + widths[1] + widths[2] != w->dims[1])
    return Wrong("widths of queries, keys and values that are not those of the weights");
  SLM_ASSIGN_OR_RETURN(Array product, MatMulArrays(c, *x, *w, x->type));
  if (const Array* bias = c.Optional(2)) SLM_RETURN_IF_ERROR(AddColumns(product, *bias, 0));
  return FromProduct(c, product, widths, {3, 4, 5, 6});
}

// input, weight, bias, input_scale, weight_scale, mask_index, input_zero_point, weight_zero_point, past
Result<Arrays> QAttention(const Call& c) {
  // The integer product and its scales are those of MatMulIntegerToFloat.
  const onnx::Node plain;
  SLM_ASSIGN_OR_RETURN(
      const Arrays product,
      MatMulIntegerToFloat(Call(
          plain, c.opset(), {c.Optional(0), c.Optional(1), c.Optional(3), c.Optional(4), c.Optional(6), c.Optional(7), c.Optional(2)})));
  if (product[0].dims.size() != 3 || product[0].dims[2] % 3 != 0) return Wrong("the weight does not have three parts");
  return FromProduct(c, product[0], Dims(3, product[0].dims[2] / 3), {5, 8, kNone, kNone});
}

}  // namespace slm::reference
