// Attention in the steps that exporters write it in: scores, mask, softmax, weighted sum.
#include <fmt/format.h>

#include <cmath>

#include "importer/nodes/attention.h"

namespace slm::importer {

using reference::Array;

bool Hides(double added) { return added <= -1e4; }  // the smallest f16, the smallest f32, -inf, -10000

namespace {

// A row as heads and width, where the axis of the one token is one of those of one value: [1, H, 1, D], or [1, Hkv, Hq / Hkv, D], whose
// heads are the rows of the key head that they share.
Result<HeadAxes> HeadsOfToken(const Call& c, const Axes& axes) {
  const Error cannot = c.Refuse("attention over values of one token that are not [heads, 1, width] or [heads, queries of a head, width]");
  const Axes all = WithoutOnes(axes);
  const size_t n = axes.size();
  if (n < 3 || all.empty() || all.size() > 3 || axes[n - 1] != all.back()) return cannot;
  int64_t stride = 1;
  for (size_t i = all.size(); i-- > 0;) {  // all of a row, in its order
    if (all[i].kind != AxisKind::kFeature || all[i].repeat != 1 || all[i].stride != stride) return cannot;
    stride *= all[i].n;
  }
  HeadAxes h;
  h.width = all.back().n;
  const Axis &outer = axes[n - 3], &inner = axes[n - 2];
  if (outer.n * inner.n * h.width != stride) return cannot;
  h.heads = outer.n * inner.n;
  if (inner.kind != AxisKind::kOne) h.shared = outer.n;
  return h;
}

}  // namespace

Result<HeadAxes> HeadsFirst(const Call& c, const Axes& axes, AxisKind length, LastAxis last) {
  if (length == AxisKind::kToken && c.w.form == CallForm::kOneToken) return HeadsOfToken(c, axes);
  const Axes all = WithoutOnes(axes);
  HeadAxes h;
  size_t at = 0;
  if (all.size() == 3) {
    const Axis& a = all[at++];
    if (a.kind == AxisKind::kRepeat) h.repeat = a.n;
    else if (a.kind == AxisKind::kFeature) h.heads = a.n, h.repeat = a.repeat;
    else return c.Refuse("attention over values that are not [heads, tokens, width]");
  }
  if (all.size() - at != 2) return c.Refuse("attention over values that are not [heads, tokens, width]");
  const bool turned = last == LastAxis::kLength;
  const Axis &slots = all[turned ? at + 1 : at], &width = all[turned ? at : at + 1];
  if (slots.kind != length || slots.n != 1 || width.kind != AxisKind::kFeature || width.stride != 1 || width.repeat != 1)
    return c.Refuse("attention over values that are not [heads, tokens, width]");
  h.width = width.n;
  if (all.size() == 3 && all[0].kind == AxisKind::kFeature && all[0].stride != h.width)
    return c.Refuse("heads that do not follow each other");
  return h;
}

Result<ValuePtr> Scores(const Call& c, const ValuePtr& q, const Value& keys) {
  const ValuePtr rows = Emitter::AsRows(q);
  if (!rows || !keys.is_key) return c.Refuse("a product with the cache that is no attention");
  SLM_ASSIGN_OR_RETURN(const HeadAxes hq, HeadsFirst(c, rows->axes, AxisKind::kToken));
  SLM_ASSIGN_OR_RETURN(const HeadAxes hk, HeadsFirst(c, keys.axes, AxisKind::kSlot, LastAxis::kLength));
  if (hq.width != hk.width || !Fit(hq, hk) || hq.repeat != 1) return c.Refuse("queries and keys of different heads");
  ValuePtr out = c.Make(Kind::kScores, rows->axes);
  out->axes.back() = OfKind(AxisKind::kSlot);
  out->of = rows;
  out->with = std::make_shared<Value>(keys);
  out->id = c.w.emit.Unscaled(*rows);
  out->scale = rows->scale * keys.scale;
  return out;
}

Result<SeenAt> SeenThrough(const Call& c, const Value& mask, Length length) {
  const auto& probes = c.w.calls.probes();
  if (mask.kind != Kind::kCall) return c.Refuse("a mask that is the same in every call");
  for (size_t p = 0; p < probes.size(); ++p) {
    const Dims& dims = mask.at[p].dims;
    const int64_t total = probes[p].past + probes[p].tokens, last = dims.empty() ? -1 : dims.back();
    const int64_t rows = dims.size() < 2 ? 1 : dims[dims.size() - 2];
    const bool fits = length == Length::kWhole ? last == total : last >= 0 && last <= total;
    if (!fits || (rows != 1 && rows != probes[p].tokens) || mask.at[p].size() != rows * last)
      return c.Refuse("a mask that is not [tokens, slots]");
  }
  return SeenAt([&probes, &mask](size_t p, int64_t t, int64_t s) {
    const Array& a = mask.at[p];
    const int64_t last = a.dims.back(), rows = last == 0 ? 1 : a.size() / last;
    if (s >= last) return Seen::kNo;
    const double x = NumberAt(a, (rows == probes[p].tokens ? t : 0) * last + s);
    if (onnx::Info(a.type).kind != onnx::ElementKind::kFloating) return x != 0 ? Seen::kYes : Seen::kNo;
    return x == 0 ? Seen::kYes : Hides(x) ? Seen::kNo : Seen::kPartly;
  });
}

Result<int> CausalWindow(const Call& c, const SeenAt& seen) {
  const auto& probes = c.w.calls.probes();
  int64_t window = 0;  // from the longest call that has one
  for (size_t p = probes.size(); p-- > 0 && window == 0;) {
    const int64_t position = probes[p].past + probes[p].tokens - 1;
    int64_t first = 0;
    while (first < position && seen(p, probes[p].tokens - 1, first) == Seen::kNo) ++first;
    if (first > 0) window = position + 1 - first;
  }
  for (size_t p = 0; p < probes.size(); ++p)
    for (int64_t t = 0; t < probes[p].tokens; ++t)
      for (int64_t s = 0; s < probes[p].past + probes[p].tokens; ++s) {
        const int64_t position = probes[p].past + t;
        const bool want = s <= position && (window == 0 || s > position - window);
        if (seen(p, t, s) != (want ? Seen::kYes : Seen::kNo)) return c.Refuse("a mask that is not causal, with or without a window");
      }
  return static_cast<int>(window);
}

Result<ValuePtr> Mask(const Call& c, const Value& scores, const Value& mask) {
  if (scores.masked) return c.Refuse("a second mask");
  SLM_ASSIGN_OR_RETURN(const SeenAt seen, SeenThrough(c, mask, Length::kWhole));
  auto out = std::make_shared<Value>(scores);
  SLM_ASSIGN_OR_RETURN(out->window, CausalWindow(c, seen));
  out->masked = true;
  return out;
}

Result<Values> SoftmaxNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr s, c.In(0));
  SLM_ASSIGN_OR_RETURN(const size_t axis, AxisOf(c.Int("axis", -1), s->axes.size()));
  if (s->kind != Kind::kScores || !s->masked || axis + 1 != s->axes.size())
    return c.Refuse("a softmax of other than masked scores of an attention");
  auto out = std::make_shared<Value>(*s);
  out->kind = Kind::kProbabilities;
  return Single(std::move(out));
}

Result<Values> IsNanNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  if (v->kind != Kind::kProbabilities) return c.Refuse("of something that is no probability");
  return Single(c.Make(Kind::kNever, v->axes));
}

// A mask that replaces scores, or a guard against rows that see nothing.
Result<Values> WhereNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr condition, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr yes, c.In(1));
  SLM_ASSIGN_OR_RETURN(const ValuePtr no, c.In(2));
  if (condition->kind == Kind::kNever) return Single(no);
  const auto hidden = NumberOf(yes->kind == Kind::kScores ? *no : *yes);
  const ValuePtr scores = yes->kind == Kind::kScores ? yes : no;
  if (condition->kind != Kind::kCall || scores->kind != Kind::kScores || !hidden || !Hides(*hidden))
    return c.Refuse("a choice that is no mask of an attention");
  auto mask = std::make_shared<Value>(*condition);
  if (scores == no)
    for (Array& a : mask->at)
      for (int64_t& i : a.i) i = i == 0;
  SLM_ASSIGN_OR_RETURN(ValuePtr out, Mask(c, *scores, *mask));
  return Single(std::move(out));
}

Result<ValuePtr> Attend(const Call& c, const Value& p, const Value& v) {
  const Value& keys = *p.with;
  SLM_ASSIGN_OR_RETURN(const HeadAxes hq, HeadsFirst(c, p.of->axes, AxisKind::kToken));
  SLM_ASSIGN_OR_RETURN(const HeadAxes hv, HeadsFirst(c, v.axes, AxisKind::kSlot));
  if (v.is_key || v.layer != keys.layer || v.scale != 1 || hv.width != hq.width || !Fit(hq, hv))
    return c.Refuse("values that do not belong to the keys");
  AttentionParts a;
  a.q = p.id, a.k = keys.id, a.v = v.id;
  a.n_heads = hq.heads, a.n_kv_heads = hv.heads, a.head_dim = hq.width;
  a.layer = v.layer;
  a.softcap = p.softcap, a.window = p.window;
  a.scale = p.squashed ? p.scale * p.softcap : p.scale;  // the operator divides by the cap before the tanh
  SLM_ASSIGN_OR_RETURN(const graph::ValueId id, EmitAttention(c, a));
  ValuePtr out = c.Make(Kind::kRows, p.of->axes);
  out->id = id;
  return out;
}

}  // namespace slm::importer
