// Rotations and attention: as one operator, or as what the steps of an exported graph add up to.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "importer/walk.h"

namespace slm::importer {
namespace {

using graph::AttrKey;
using graph::kNoValue;
using graph::Op;
using graph::ValueId;
using AxisKind = Axis::Kind;
using reference::Array;

constexpr double kMaskedBelow = -1e4;  // what a mask adds to scores that do not count: the smallest f16, the smallest f32, -inf, -10000

// [1, H, T, D] (or without the ones): heads, then the token or slot axis, then the width. n_heads 1: there is no axis of heads.
struct HeadAxes {
  int64_t heads = 1, repeat = 1, width = 0;
};
enum class LastAxis : uint8_t { kWidth, kLength };
Result<HeadAxes> HeadsFirst(const Call& c, const Axes& axes, AxisKind length, LastAxis last = LastAxis::kWidth) {
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
  if (slots.kind != length || width.kind != AxisKind::kFeature || width.stride != 1 || width.repeat != 1)
    return c.Refuse("attention over values that are not [heads, tokens, width]");
  h.width = width.n;
  if (all.size() == 3 && all[0].kind == AxisKind::kFeature && all[0].stride != h.width)
    return c.Refuse("heads that do not follow each other");
  return h;
}

}  // namespace

ValueId EmitRotation(const Call& c, ValueId x, const RopeTable& t, int64_t heads, int64_t width, Pairs pairs) {
  return c.w.emit.Node(
      Op::kRotary, (c.node.name.empty() ? c.out() : c.node.name) + ".rotated", {x, t.cos, t.sin, c.w.emit.positions()}, width,
      {{AttrKey::kNumHeads, heads}, {AttrKey::kRotaryDim, 2 * t.half}, {AttrKey::kInterleaved, int64_t{pairs == Pairs::kInterleaved}}});
}

namespace {

// Tables of the file, [positions, half].
Result<const RopeTable*> FileTables(const Call& c, size_t cos_at, size_t sin_at, int64_t most_half) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr cos, c.In(cos_at));
  SLM_ASSIGN_OR_RETURN(const ValuePtr sin, c.In(sin_at));
  for (const ValuePtr& v : {cos, sin})
    if (v->kind != Kind::kFixed || !v->weight || v->weight->scales || v->weight->transposed || v->weight->values->dims.size() != 2)
      return c.Refuse("cosines and sines that are no tables of the file");
  const onnx::Tensor &a = *cos->weight->values, &b = *sin->weight->values;
  if (a.dims != b.dims || a.dims[1] < 1 || a.dims[1] > most_half || a.dims[0] < 1)
    return c.Refuse("tables of cosines and sines that do not fit the heads");
  RopeTable& t = c.w.emit.TablesOfFile(&a, &b, a.dims[1]);
  if (t.cos_rows.empty()) {
    SLM_ASSIGN_OR_RETURN(t.cos_rows, FloatValues(a));
    SLM_ASSIGN_OR_RETURN(t.sin_rows, FloatValues(b));
  }
  return &t;
}

Pairs PairsOf(const Call& c, const char* attribute) { return c.Int(attribute, 0) != 0 ? Pairs::kInterleaved : Pairs::kHalves; }

// Does the value hold the positions of the call's tokens?
bool IsPositions(const Call& c, const Value& v) {
  const auto& probes = c.w.calls.probes();
  if (v.kind != Kind::kCall) return false;
  for (size_t p = 0; p < probes.size(); ++p) {
    if (v.at[p].size() != probes[p].tokens) return false;
    for (int64_t i = 0; i < probes[p].tokens; ++i)
      if (NumberAt(v.at[p], i) != static_cast<double>(probes[p].past + i)) return false;
  }
  return true;
}

bool HoldsTotal(const Call& c, const Value& v, int64_t less) {
  const auto& probes = c.w.calls.probes();
  if (v.kind != Kind::kCall) return false;
  for (size_t p = 0; p < probes.size(); ++p)
    if (v.at[p].size() != 1 || NumberAt(v.at[p], 0) != static_cast<double>(probes[p].past + probes[p].tokens - less)) return false;
  return true;
}

}  // namespace

Result<Values> RotaryNode(const Call& c) {
  const bool standard = c.node.domain.empty();
  SLM_ASSIGN_OR_RETURN(const ValuePtr x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr positions, c.In(standard ? 3 : 1));
  if (!IsPositions(c, *positions)) return c.Refuse("positions that are not those of the tokens");
  if (c.Float("scale", 1) != 1 || c.Int("is_packed_batching", 0) != 0) return c.Refuse("a scale, or packed batches");
  const ValuePtr rows = Emitter::AsRows(x);
  if (!rows) return c.Refuse("of something that is no row of numbers a token");
  const int64_t width = Width(rows->axes);
  SLM_ASSIGN_OR_RETURN(const RopeTable* t, FileTables(c, standard ? 1 : 2, standard ? 2 : 3, width / 2));
  int64_t heads = c.Int("num_heads", 0);
  if (rows->axes.size() == 4) {
    SLM_ASSIGN_OR_RETURN(const HeadAxes h, HeadsFirst(c, rows->axes, AxisKind::kToken));
    heads = h.heads;
  } else if (!InOrder(rows->axes)) {
    return c.Refuse("rows that lie differently");
  }
  if (heads == 0) heads = width / (2 * t->half);
  const int64_t rotated = c.Int("rotary_embedding_dim", 0);
  if (heads < 1 || width % heads != 0 || 2 * t->half > width / heads || (rotated != 0 && rotated != 2 * t->half) ||
      (rotated == 0 && 2 * t->half != width / heads))
    return c.Refuse("heads, rotated width and tables that do not fit each other");
  SLM_ASSIGN_OR_RETURN(const ValueId id, c.w.emit.Materialise(*rows));
  ValuePtr out = c.Make(Kind::kRows, rows->axes);
  out->id = EmitRotation(c, id, *t, heads, width, PairsOf(c, "interleaved"));
  return Single(std::move(out));
}

// x * cos + half turn of x * sin, where cos and sin hold each column's value twice.
Result<ValuePtr> Turned(const Call& c, const Value& first, const Value& second) {
  const ValuePtr &x = first.of, &turn = second.of;
  const ValuePtr rows = x->kind == Kind::kPart ? x->of : x;
  const int64_t width = rows->axes.empty() ? 0 : rows->axes.back().n, rotated = turn->kind == Kind::kHalfTurn ? turn->end : 0;
  const bool same = rows->kind == Kind::kRows && turn->kind == Kind::kHalfTurn && turn->of == rows &&
                    (x == rows ? rotated == width : x->begin == 0 && x->end == rotated && !x->negated);
  if (!same || rows->axes.back().stride != 1 || rotated % 2 != 0) return c.Refuse("a sum of products with tables that is no rotation");
  // The tables spread over tokens and columns, and over nothing else.
  const auto& probes = c.w.calls.probes();
  const int token = TokenAxis(rows->axes);
  for (const std::string& name : {first.table, second.table}) {
    const Value& v = *c.w.values.at(name);
    for (size_t p = 0; p < probes.size(); ++p) {
      const Array& a = v.at[p];
      for (size_t k = 1; k <= a.dims.size(); ++k) {
        const auto from_end = static_cast<int>(rows->axes.size()) - static_cast<int>(k);
        const int64_t want = from_end == token ? probes[p].tokens : k == 1 ? rotated : 1;
        if (a.dims[a.dims.size() - k] != want) return c.Refuse("a table of rotations that is not [tokens, columns]");
      }
      if (a.size() != probes[p].tokens * rotated) return c.Refuse("a table of rotations that is not [tokens, columns]");
      for (int64_t i = 0; i < a.size(); ++i)
        if (i % rotated >= rotated / 2 && NumberAt(a, i) != NumberAt(a, i - rotated / 2))
          return c.Refuse("a table whose halves differ: only rotations in halves are read");
    }
  }
  const RopeTable& t = c.w.emit.Tables(first.table, second.table, rotated / 2);
  SLM_ASSIGN_OR_RETURN(const ValueId id, c.w.emit.Materialise(*rows));
  const int64_t all = Width(rows->axes);
  ValuePtr whole = c.Make(Kind::kRows, rows->axes);
  whole->id = EmitRotation(c, id, t, all / width, all, Pairs::kHalves);
  if (rotated == width) return whole;
  ValuePtr part = c.Make(Kind::kTurned, x->axes);
  part->of = rows;
  part->with = whole;
  part->end = rotated;
  return part;
}

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

Result<Values> GroupQueryAttentionNode(const Call& c) {
  for (size_t i = 10; i < c.in.size(); ++i)
    if (c.in[i]) return c.Refuse(fmt::format("input {} (bias, sinks, scales of the cache or norms)", i));
  for (const char* name : {"smooth_softmax", "qk_output", "kv_cache_bit_width", "sliding_window_cache"})
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
      auto part = c.Make(Kind::kPart, RowAxes(i == 0 ? q_width : kv_width));
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
  SLM_ASSIGN_OR_RETURN(const ValueId id, EmitAttention(c, a));
  Values out{c.Rows(id, RowAxes(q_width))};
  for (const ValuePtr& past : {past_key, past_value}) {
    auto present = std::make_shared<Value>(*past);
    present->kind = Kind::kCached;
    present->id = past->is_key ? a.k : a.v;
    for (Axis& axis : present->axes)
      if (axis.kind == AxisKind::kPast) axis = OfKind(AxisKind::kSlot);
    out.push_back(std::move(present));
  }
  return out;
}

Result<ValuePtr> Scores(const Call& c, const ValuePtr& q, const Value& keys) {
  const ValuePtr rows = Emitter::AsRows(q);
  if (!rows || !keys.is_key) return c.Refuse("a product with the cache that is no attention");
  SLM_ASSIGN_OR_RETURN(const HeadAxes hq, HeadsFirst(c, rows->axes, AxisKind::kToken));
  SLM_ASSIGN_OR_RETURN(const HeadAxes hk, HeadsFirst(c, keys.axes, AxisKind::kSlot, LastAxis::kLength));
  if (hq.width != hk.width || hq.heads != hk.heads * hk.repeat || hq.repeat != 1) return c.Refuse("queries and keys of different heads");
  ValuePtr out = c.Make(Kind::kScores, rows->axes);
  out->axes.back() = OfKind(AxisKind::kSlot);
  out->of = rows;
  out->with = std::make_shared<Value>(keys);
  out->id = c.w.emit.Unscaled(*rows);
  out->scale = rows->scale * keys.scale;
  return out;
}

// The mask of every probed call must be that of a causal decoder, perhaps with a window.
Result<ValuePtr> Mask(const Call& c, const Value& scores, const Value& mask) {
  if (scores.masked) return c.Refuse("a second mask");
  const auto& probes = c.w.calls.probes();
  auto out = std::make_shared<Value>(scores);
  for (size_t pass = 0; pass < 2; ++pass)  // the window first, from the longest call
    for (size_t p = probes.size(); p-- > 0;) {
      const Array& a = mask.at[p];
      const int64_t total = probes[p].past + probes[p].tokens, tokens = probes[p].tokens;
      if (a.size() != tokens * total || a.dims.size() < 2 || a.dims.back() != total || a.dims[a.dims.size() - 2] != tokens)
        return c.Refuse("a mask that is not [tokens, slots]");
      const bool is_bool = a.type == onnx::ElementType::kBool;
      const auto seen = [&](int64_t t, int64_t s) { return is_bool ? NumberAt(a, t * total + s) != 0 : NumberAt(a, t * total + s) == 0; };
      if (pass == 0) {
        int64_t first = 0;
        const int64_t position = total - 1;
        while (first < position && !seen(tokens - 1, first)) ++first;
        if (first > 0 && out->window == 0) out->window = static_cast<int>(position + 1 - first);
        continue;
      }
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t s = 0; s < total; ++s) {
          const int64_t position = probes[p].past + t;
          const bool want = s <= position && (out->window == 0 || s > position - out->window);
          const bool hidden = is_bool || NumberAt(a, t * total + s) <= kMaskedBelow;
          if (seen(t, s) != want || (!want && !hidden)) return c.Refuse("a mask that is not causal, with or without a window");
        }
    }
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
  if (condition->kind != Kind::kCall || scores->kind != Kind::kScores || !hidden || *hidden > kMaskedBelow)
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
  if (v.is_key || v.layer != keys.layer || v.scale != 1 || hv.width != hq.width || hv.heads * hv.repeat != hq.heads)
    return c.Refuse("values that do not belong to the keys");
  AttentionParts a;
  a.q = p.id, a.k = keys.id, a.v = v.id;
  a.n_heads = hq.heads, a.n_kv_heads = hv.heads, a.head_dim = hq.width;
  a.layer = v.layer;
  a.softcap = p.softcap, a.window = p.window;
  a.scale = p.squashed ? p.scale * p.softcap : p.scale;  // the operator divides by the cap before the tanh
  SLM_ASSIGN_OR_RETURN(const ValueId id, EmitAttention(c, a));
  ValuePtr out = c.Make(Kind::kRows, p.of->axes);
  out->id = id;
  return out;
}

}  // namespace slm::importer
