// Rotations of queries and keys: as one operator, or as what the steps of an exported graph add up to.
#include <algorithm>

#include "importer/nodes/attention.h"

namespace slm::importer {

using reference::Array;

ValueId EmitRotation(const Call& c, ValueId x, const RopeTable& t, int64_t heads, int64_t width, Pairs pairs) {
  return c.w.emit.Node(
      Op::kRotary, (c.node.name.empty() ? c.out() : c.node.name) + ".rotated", {x, t.cos, t.sin, c.w.emit.positions()}, width,
      {{AttrKey::kNumHeads, heads}, {AttrKey::kRotaryDim, 2 * t.half}, {AttrKey::kInterleaved, int64_t{pairs == Pairs::kInterleaved}}});
}

namespace {

Dims DimsOf(const Value& v) { return v.weight ? v.weight->dims() : v.array->dims; }

// Tables that the call has worked out, [1, T, half] each.
Result<const RopeTable*> CallTables(const Call& c, size_t cos_at, size_t sin_at, int64_t most_half) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr cos, c.In(cos_at));
  SLM_ASSIGN_OR_RETURN(const ValuePtr sin, c.In(sin_at));
  const auto& probes = c.w.calls.probes();
  int64_t half = 0;
  for (const ValuePtr& v : {cos, sin}) {
    if (v->kind != Kind::kCall) return c.Refuse("cosines and sines without positions that the call does not give");
    for (size_t p = 0; p < probes.size(); ++p) {
      const Dims& dims = v->at[p].dims;
      if (half == 0 && !dims.empty()) half = dims.back();
      if (half < 1 || half > most_half || dims != Dims{1, probes[p].tokens, half})
        return c.Refuse("a table of rotations that is not [1, tokens, columns]");
    }
  }
  return &c.w.emit.Tables(c.node.inputs[cos_at], c.node.inputs[sin_at], half, half);
}

// The position of the first token, from which the others count on.
bool IsFirstPosition(const Call& c, const Value& v) {
  const auto& probes = c.w.calls.probes();
  if (v.kind != Kind::kCall) return false;
  for (size_t p = 0; p < probes.size(); ++p)
    if (v.at[p].size() != 1 || NumberAt(v.at[p], 0) != static_cast<double>(probes[p].past)) return false;
  return true;
}

}  // namespace

Result<const RopeTable*> FileTables(const Call& c, size_t cos_at, size_t sin_at, int64_t most_half) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr cos, c.In(cos_at));
  SLM_ASSIGN_OR_RETURN(const ValuePtr sin, c.In(sin_at));
  for (const ValuePtr& v : {cos, sin})
    if (v->kind != Kind::kFixed || (v->weight && (v->weight->scales || v->weight->transposed)) || DimsOf(*v).size() != 2)
      return c.Refuse("cosines and sines that are no tables of the file");
  const Dims dims = DimsOf(*cos);
  if (dims != DimsOf(*sin) || dims[1] < 1 || dims[1] > most_half || dims[0] < 1)
    return c.Refuse("tables of cosines and sines that do not fit the heads");
  RopeTable& t = c.w.emit.TablesOfFile(*cos, *sin, dims[1]);
  if (t.cos_rows.empty()) {
    SLM_ASSIGN_OR_RETURN(t.cos_rows, FloatsOf(*cos));
    SLM_ASSIGN_OR_RETURN(t.sin_rows, FloatsOf(*sin));
  }
  return &t;
}

Pairs PairsOf(const Call& c, const char* attribute) { return c.Int(attribute, 0) != 0 ? Pairs::kInterleaved : Pairs::kHalves; }

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

Result<Values> RotaryNode(const Call& c) {
  const bool standard = c.node.domain.empty();
  SLM_ASSIGN_OR_RETURN(const ValuePtr x, c.In(0));
  const ValuePtr positions = c.Optional(standard ? 3 : 1);
  if (!standard || positions) {
    if (!positions || (!IsPositions(c, *positions) && (standard || !IsFirstPosition(c, *positions))))
      return c.Refuse("positions that are not those of the tokens");
  }
  if (c.Float("scale", 1) != 1 || c.Int("is_packed_batching", 0) != 0) return c.Refuse("a scale, or packed batches");
  const ValuePtr rows = Emitter::AsRows(x);
  if (!rows) return c.Refuse("of something that is no row of numbers a token");
  const int64_t width = Width(rows->axes);
  SLM_ASSIGN_OR_RETURN(const RopeTable* t,
                       positions ? FileTables(c, standard ? 1 : 2, standard ? 2 : 3, width / 2) : CallTables(c, 1, 2, width / 2));
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
  const RopeTable& t = c.w.emit.Tables(first.table, second.table, rotated / 2, rotated);
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

}  // namespace slm::importer
