// Attention as one operator: GroupQueryAttention, MultiHeadAttention, and ONNX's own Attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "importer/nodes/attention.h"

namespace slm::importer {

Result<ValueId> EmitAttention(const Call& c, const AttentionParts& a) {
  Walk& w = c.w;
  const auto at = static_cast<size_t>(a.layer);
  if (a.layer != w.n_attentions || at >= w.layers.size())
    return c.Refuse(fmt::format("attention with the cache of layer {}; in the graph it is number {}", a.layer, w.n_attentions));
  if (a.n_heads < 1 || a.n_kv_heads < 1 || a.n_heads % a.n_kv_heads != 0)
    return c.Refuse(fmt::format("{} heads for {} of keys", a.n_heads, a.n_kv_heads));
  Layer& layer = w.layers[at];
  if (layer.n_kv_heads != a.n_kv_heads || layer.head_dim != a.head_dim) return c.Refuse("heads that the cache does not have");
  layer.n_heads = a.n_heads, layer.window = a.window, layer.has_attention = true;
  ++w.n_attentions;
  std::vector<graph::Attr> attrs{
      {AttrKey::kNumHeads, a.n_heads},     {AttrKey::kKvNumHeads, a.n_kv_heads},
      {AttrKey::kScale, a.scale},          {AttrKey::kDoRotary, int64_t{0}},
      {AttrKey::kLayer, int64_t{a.layer}}, {AttrKey::kLocalWindow, a.window > 0 ? int64_t{a.window} : int64_t{-1}}};
  if (a.softcap != 0) attrs.push_back({AttrKey::kSoftcap, a.softcap});
  return w.emit.Node(Op::kGroupQueryAttention, c.node.name.empty() ? c.out() : c.node.name, {a.q, a.k, a.v}, a.n_heads * a.head_dim,
                     std::move(attrs));
}

ValuePtr Present(const Value& past, ValueId id) {
  auto present = std::make_shared<Value>(past);
  present->kind = Kind::kCached;
  present->id = id;
  for (Axis& axis : present->axes)
    if (axis.kind == AxisKind::kPast) axis = OfKind(AxisKind::kSlot);
  return present;
}

namespace {

// Keys, values or queries of one operator in the graph: new rows, or a cache that holds them already.
struct HeadRows {
  ValueId id = kNoValue;
  int64_t heads = 0, width = 0;
  const Value* cached = nullptr;
};

// `heads`: what the node states for values [1, T, heads * D]; those of [1, heads, T, D] show theirs.
Result<HeadRows> RowsOf(const Call& c, const ValuePtr& v, int64_t heads, const char* what) {
  HeadRows r;
  if (v->kind == Kind::kCached) {
    SLM_ASSIGN_OR_RETURN(const HeadAxes h, HeadsFirst(c, v->axes, AxisKind::kSlot));
    r.id = v->id, r.heads = h.heads * h.repeat, r.width = h.width, r.cached = v.get();
    if (v->scale != 1) return c.Refuse(fmt::format("{} of a cache times a factor", what));
    return r;
  }
  const ValuePtr rows = Emitter::AsRows(v);
  if (!rows) return c.Refuse(fmt::format("{} that are no rows of numbers a token", what));
  if (rows->axes.size() == 4) {
    SLM_ASSIGN_OR_RETURN(const HeadAxes h, HeadsFirst(c, rows->axes, AxisKind::kToken));
    r.heads = h.heads, r.width = h.width;
    if (h.repeat != 1) return c.Refuse(fmt::format("{} repeated before they are cached", what));
  } else {
    const int64_t width = Width(rows->axes);
    if (rows->axes.size() != 3 || !InOrder(rows->axes) || heads < 1 || width % heads != 0)
      return c.Refuse(fmt::format("{} that are not [batch, tokens, heads * width]", what));
    r.heads = heads, r.width = width / heads;
  }
  SLM_ASSIGN_OR_RETURN(r.id, c.w.emit.Materialise(*rows));
  return r;
}

// What an operator's inputs and attributes say; `past`: nullptr where keys and values hold it.
struct Attending {
  ValuePtr q, k, v, past_key, past_value;
  int64_t n_heads = 0, n_kv_heads = 0;
  float scale = 0, softcap = 0;  // 0: the usual scale, no cap
  SeenAt seen;
};

Result<Values> EmitAttending(const Call& c, const Attending& a) {
  if (a.n_heads > kMostHeads || a.n_kv_heads > kMostHeads) return c.Refuse("numbers of heads");
  SLM_ASSIGN_OR_RETURN(const HeadRows q, RowsOf(c, a.q, a.n_heads, "queries"));
  SLM_ASSIGN_OR_RETURN(const HeadRows k, RowsOf(c, a.k, a.n_kv_heads, "keys"));
  SLM_ASSIGN_OR_RETURN(const HeadRows v, RowsOf(c, a.v, a.n_kv_heads, "values"));
  const Value *key = a.past_key ? a.past_key.get() : k.cached, *value = a.past_value ? a.past_value.get() : v.cached;
  const Kind kind = a.past_key ? Kind::kPast : Kind::kCached;
  if (q.cached || !key || !value || (a.past_key && (k.cached || v.cached)) || key->kind != kind || value->kind != kind || !key->is_key ||
      value->is_key || key->layer != value->layer)
    return c.Refuse("keys and values that are not the cache of one layer");
  if (k.heads != v.heads || k.width != v.width || q.width != k.width) return c.Refuse("heads of queries, keys and values that differ");
  AttentionParts parts;
  parts.q = q.id, parts.k = k.id, parts.v = v.id;
  parts.n_heads = q.heads, parts.head_dim = q.width, parts.layer = key->layer;
  parts.n_kv_heads = static_cast<size_t>(key->layer) < c.w.layers.size() ? c.w.layers[static_cast<size_t>(key->layer)].n_kv_heads : 0;
  if (k.heads != parts.n_kv_heads && (!k.cached || k.heads != q.heads)) return c.Refuse("heads that the cache does not have");
  parts.scale = a.scale != 0 ? a.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(q.width)));
  parts.softcap = a.softcap;
  SLM_ASSIGN_OR_RETURN(parts.window, CausalWindow(c, a.seen));
  SLM_ASSIGN_OR_RETURN(const ValueId id, EmitAttention(c, parts));
  Values out{c.Rows(id, a.q->axes.size() == 4 ? a.q->axes : RowAxes(q.heads * q.width, c.w.form))};
  out.push_back(a.past_key ? Present(*key, k.id) : a.k);
  out.push_back(a.past_value ? Present(*value, v.id) : a.v);
  return out;
}

// Both of two masks; nullptr: there is none.
SeenAt Both(const SeenAt& a, const SeenAt& b) {
  if (!a) return b;
  if (!b) return a;
  return [a, b](size_t p, int64_t t, int64_t s) {
    const Seen x = a(p, t, s), y = b(p, t, s);
    return x == Seen::kNo || y == Seen::kNo ? Seen::kNo : x == Seen::kYes ? y : x;
  };
}

// No later token than the query itself, which stands behind the past that the operator is given.
SeenAt NothingLater(const Call& c, const ValuePtr& past) {
  return [&c, given = past != nullptr](size_t p, int64_t t, int64_t s) {
    return s <= t + (given ? c.w.calls.probes()[p].past : 0) ? Seen::kYes : Seen::kNo;
  };
}

}  // namespace

Result<Values> GroupQueryAttentionNode(const Call& c) {
  for (size_t i = 10; i < c.in.size(); ++i)
    if (c.in[i]) return c.Refuse(fmt::format("input {} (bias, sinks, scales of the cache or norms)", i));
  for (const char* name : {"smooth_softmax", "qk_output", "kv_cache_bit_width"})
    if (c.Int(name, 0) > 0) return c.Refuse(fmt::format("the attribute {}", name));
  if (c.Int("causal", 1) == 0) return c.Refuse("attention that is not causal");
  AttentionParts a;
  a.n_heads = c.Int("num_heads", 0), a.n_kv_heads = c.Int("kv_num_heads", 0);
  SLM_ASSIGN_OR_RETURN(const ValuePtr query, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr past_key, c.In(3));
  SLM_ASSIGN_OR_RETURN(const ValuePtr past_value, c.In(4));
  SLM_ASSIGN_OR_RETURN(const ValuePtr last, c.In(5));
  SLM_ASSIGN_OR_RETURN(const ValuePtr total, c.In(6));
  if (past_key->kind != Kind::kPast || past_value->kind != Kind::kPast || !past_key->is_key || past_value->is_key ||
      past_key->layer != past_value->layer)
    return c.Refuse("a past that is not the cache of one layer");
  if (!HoldsTotal(c, *last, 1) || !HoldsTotal(c, *total, 0)) return c.Refuse("lengths that are not those of the sequence");
  if (c.Optional(9) && !IsPositions(c, *c.in[9])) return c.Refuse("positions that are not those of the tokens");
  a.layer = past_key->layer;
  a.head_dim = past_key->axes.back().n;
  if (a.n_heads < 1 || a.n_heads > kMostHeads || a.n_kv_heads < 1 || a.n_kv_heads > a.n_heads) return c.Refuse("numbers of heads");
  const int64_t q_width = a.n_heads * a.head_dim, kv_width = a.n_kv_heads * a.head_dim;
  Values parts{query, c.Optional(1), c.Optional(2)};
  if (!parts[1] && !parts[2]) {  // q | k | v in one
    int64_t at = 0;
    for (size_t i = 0; i < 3; ++i) {
      auto part = c.Make(Kind::kPart, RowAxes(i == 0 ? q_width : kv_width, c.w.form));
      part->name += std::string(".") + "qkv"[i];
      part->of = Emitter::AsRows(query);
      if (!part->of || Width(part->of->axes) != q_width + 2 * kv_width) return c.Refuse("a packed query of another width");
      part->begin = at, part->end = at += i == 0 ? q_width : kv_width;
      parts[i] = part;
    }
  }
  ValueId ids[3];
  for (size_t i = 0; i < 3; ++i) {
    const ValuePtr rows = Emitter::AsRows(parts[i]);
    if (!rows || !InOrder(rows->axes) || Width(rows->axes) != (i == 0 ? q_width : kv_width))
      return c.Refuse(fmt::format("input {} is not [tokens, heads * width], or packed and no product", i));
    SLM_ASSIGN_OR_RETURN(ids[i], c.w.emit.Materialise(*rows));
  }
  if (const int64_t rotary = c.Int("do_rotary", 0); rotary != 0 && rotary != 1) return c.Refuse("do_rotary is 0 or 1");
  if (c.Int("do_rotary", 0) != 0) {
    SLM_ASSIGN_OR_RETURN(const RopeTable* t, FileTables(c, 7, 8, a.head_dim / 2));
    const Pairs pairs = PairsOf(c, "rotary_interleaved");
    ids[0] = EmitRotation(c, ids[0], *t, a.n_heads, q_width, pairs);
    ids[1] = EmitRotation(c, ids[1], *t, a.n_kv_heads, kv_width, pairs);
  }
  a.q = ids[0], a.k = ids[1], a.v = ids[2];
  a.scale = c.Float("scale", 0);
  if (a.scale == 0) a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim)));
  a.softcap = c.Float("softcap", 0);
  const int64_t window = c.Int("local_window_size", -1);
  a.window = window > 0 ? static_cast<int>(std::min<int64_t>(window, INT32_MAX)) : 0;
  // A cache of the window's size forgets what no query sees any more; ours keeps it.
  if (c.Int("sliding_window_cache", 0) != 0 && a.window == 0) return c.Refuse("a cache of a window, without a window");
  SLM_ASSIGN_OR_RETURN(const ValueId id, EmitAttention(c, a));
  Values out{c.Rows(id, RowAxes(q_width, c.w.form))};
  out.push_back(Present(*past_key, a.k));
  out.push_back(Present(*past_value, a.v));
  return out;
}

Result<Values> AttentionNode(const Call& c) {
  Attending a;
  SLM_ASSIGN_OR_RETURN(a.q, c.In(0));
  SLM_ASSIGN_OR_RETURN(a.k, c.In(1));
  SLM_ASSIGN_OR_RETURN(a.v, c.In(2));
  a.past_key = c.Optional(4), a.past_value = c.Optional(5);
  if ((a.past_key == nullptr) != (a.past_value == nullptr)) return c.Refuse("past keys without past values");
  if (c.Optional(6)) return c.Refuse("a cache that is kept outside (nonpad_kv_seqlen)");
  if (c.Int("left_window_size", -1) >= 0 || c.Int("right_window_size", -1) >= 0) return c.Refuse("windows as attributes");
  a.n_heads = c.Int("q_num_heads", 0), a.n_kv_heads = c.Int("kv_num_heads", 0);
  a.scale = c.Float("scale", 0), a.softcap = c.Float("softcap", 0);
  if (c.node.Find("scale") && a.scale == 0) return c.Refuse("a scale of 0");
  if (const ValuePtr mask = c.Optional(3)) {
    SLM_ASSIGN_OR_RETURN(a.seen, SeenThrough(c, *mask, Length::kMayBeShorter));
  }
  if (c.Int("is_causal", 0) != 0) a.seen = Both(a.seen, NothingLater(c, a.past_key));
  if (!a.seen) return c.Refuse("attention that is not causal");
  return EmitAttending(c, a);
}

// com.microsoft's, of as many heads of keys as of queries; its layout is in ONNX Runtime's docs/ContribOperators.md.
Result<Values> MultiHeadAttentionNode(const Call& c) {
  for (const auto& [i, what] :
       {std::pair<size_t, const char*>{8, "a cache longer than the sequence (past_sequence_length)"}, {9, "beams (cache_indirection)"}})
    if (c.Optional(i)) return c.Refuse(what);
  Attending a;
  SLM_ASSIGN_OR_RETURN(a.q, c.In(0));
  a.k = c.Optional(1), a.v = c.Optional(2);
  if (!a.k || !a.v || a.q->axes.size() != 3) return c.Refuse("queries, keys and values packed into one");
  a.past_key = c.Optional(6), a.past_value = c.Optional(7);
  if ((a.past_key == nullptr) != (a.past_value == nullptr)) return c.Refuse("past keys without past values");
  a.n_heads = a.n_kv_heads = c.Int("num_heads", 0);
  a.scale = c.Float("scale", 0);
  if (const ValuePtr padding = c.Optional(4)) {
    const bool length = padding->kind == Kind::kCall && padding->at[0].dims.size() == 1;
    if (length && !HoldsTotal(c, *padding, 0)) return c.Refuse("lengths that are not those of the sequence");
    if (!length) {
      SLM_ASSIGN_OR_RETURN(a.seen, SeenThrough(c, *padding, Length::kWhole));
    }
  }
  if (const ValuePtr bias = c.Optional(5)) {
    SLM_ASSIGN_OR_RETURN(const SeenAt seen, SeenThrough(c, *bias, Length::kWhole));
    a.seen = Both(a.seen, seen);
  }
  if (c.Int("unidirectional", 0) == 1) a.seen = Both(a.seen, NothingLater(c, a.past_key));
  if (!a.seen) return c.Refuse("attention that is not causal");
  if (const ValuePtr bias = c.Optional(3)) {  // of queries, keys and values, one behind the other
    SLM_ASSIGN_OR_RETURN(const std::vector<float> values, FloatsOf(*bias));
    size_t at = 0;
    for (ValuePtr* x : {&a.q, &a.k, &a.v}) {
      const ValuePtr rows = Emitter::AsRows(*x);
      const auto width = static_cast<size_t>(rows ? Width(rows->axes) : 0);
      if (!rows || rows->axes.size() != 3 || values.size() != 3 * width) return c.Refuse("a bias of another width");
      SLM_ASSIGN_OR_RETURN(const ValueId id, c.w.emit.Materialise(*rows));
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
      *x = c.Rows(kNoValue, rows->axes);
      (*x)->id = c.w.emit.Node(Op::kAdd, fmt::format("{}.biased", bias->name),
                               {id, c.w.emit.Numbers(bias->name, {begin, begin + static_cast<std::ptrdiff_t>(width)})},
                               static_cast<int64_t>(width));
      at += width;
    }
  }
  return EmitAttending(c, a);
}

}  // namespace slm::importer
