// Operators that only move values: what they do to the axes, and the pieces of a rotation.
#include <fmt/format.h>

#include <algorithm>

#include "importer/walk.h"

namespace slm::importer {
namespace {

constexpr int64_t kMostExtent = int64_t{1} << 40;  // values of a tensor whose shape is worked out

Result<Values> WithAxes(const Value& v, Axes axes) {
  auto out = std::make_shared<Value>(v);
  out->axes = std::move(axes);
  return Single(std::move(out));
}

// Kinds whose axes may be moved about: nothing else of them depends on the order.
bool Moves(const Value& v) {
  switch (v.kind) {
    case Kind::kIds:
    case Kind::kRows:
    case Kind::kPart:
    case Kind::kPast:
    case Kind::kCached:
    case Kind::kSigmoid:
    case Kind::kScores:
    case Kind::kProbabilities: return true;
    default: return false;
  }
}

Result<ValuePtr> Movable(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  if (!Moves(*v)) return c.Refuse("of a step inside a norm or a rotation");
  return v;
}

// The whole numbers of input `i`, or of the attribute of that name; the same in all calls unless `per_call` is asked for.
Result<std::vector<std::vector<int64_t>>> Lists(const Call& c, size_t i, const char* attribute) {
  const size_t n = c.w.calls.probes().size();
  if (const ValuePtr v = c.Optional(i)) return IntsOf(*v, n);
  const onnx::Attribute* a = c.node.Find(attribute);
  return std::vector<std::vector<int64_t>>(n, a ? a->ints : std::vector<int64_t>());
}

Result<Values> Shaped(const Call& c, const Value& v, const std::vector<Dims>& target) {
  auto axes = Reshape(v.axes, target, c.w.calls.probes());
  if (!axes.ok()) return axes.error();
  return WithAxes(v, axes.Take());
}

}  // namespace

Result<Values> ReshapeNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, Movable(c));
  SLM_ASSIGN_OR_RETURN(auto target, Lists(c, 1, "shape"));
  const bool zeros = c.Int("allowzero", 0) == 0;
  for (size_t p = 0; p < target.size(); ++p) {
    const Dims from = ShapeOf(v->axes, c.w.calls.probes()[p]);
    int64_t all = 1, known = 1;
    for (const int64_t d : from) all *= d;
    for (size_t i = 0; i < target[p].size(); ++i) {
      int64_t& d = target[p][i];
      if (d == 0 && zeros && i < from.size()) d = from[i];
      if (d < -1 || d > kMostExtent || (d > 0 && known > kMostExtent / d)) return c.Refuse("a shape that is none");
      if (d != -1) known *= d;
    }
    for (int64_t& d : target[p])
      if (d == -1) d = known == 0 ? 0 : all / known;
  }
  return Shaped(c, *v, target);
}

Result<Values> UnsqueezeNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, Movable(c));
  SLM_ASSIGN_OR_RETURN(const auto lists, Lists(c, 1, "axes"));
  const size_t rank = v->axes.size() + lists[0].size();
  std::vector<bool> is_new(rank, false);
  for (const int64_t a : lists[0]) {
    SLM_ASSIGN_OR_RETURN(const size_t at, AxisOf(a, rank));
    is_new[at] = true;
  }
  Axes axes;
  size_t from = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (!is_new[i] && from == v->axes.size()) return c.Refuse("one axis twice");
    axes.push_back(is_new[i] ? One() : v->axes[from++]);
  }
  return WithAxes(*v, std::move(axes));
}

Result<Values> SqueezeNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, Movable(c));
  SLM_ASSIGN_OR_RETURN(const auto lists, Lists(c, 1, "axes"));
  std::vector<bool> drop(v->axes.size(), false);
  for (const int64_t a : lists[0]) {
    SLM_ASSIGN_OR_RETURN(const size_t at, AxisOf(a, v->axes.size()));
    if (v->axes[at].kind != AxisKind::kOne) return c.Refuse("a squeezed axis of more than one value");
    drop[at] = true;
  }
  if (lists[0].empty()) return c.Refuse("Squeeze without axes");
  Axes axes;
  for (size_t i = 0; i < drop.size(); ++i)
    if (!drop[i]) axes.push_back(v->axes[i]);
  return WithAxes(*v, std::move(axes));
}

Result<Values> FlattenNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, Movable(c));
  const int64_t rank = static_cast<int64_t>(v->axes.size()), axis = c.Int("axis", 1), at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at > rank) return c.Refuse("an axis out of range");
  std::vector<Dims> target;
  for (const CallLengths& call : c.w.calls.probes()) {
    Dims two{1, 1};
    for (int64_t i = 0; i < rank; ++i) two[i < at ? 0 : 1] *= Extent(v->axes[static_cast<size_t>(i)], call);
    target.push_back(two);
  }
  return Shaped(c, *v, target);
}

// Keys and values repeated for the query heads that share them.
Result<Values> ExpandNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, Movable(c));
  SLM_ASSIGN_OR_RETURN(const auto target, Lists(c, 1, "shape"));
  Axes axes = v->axes;
  while (axes.size() < target[0].size()) axes.insert(axes.begin(), One());
  for (size_t k = 1; k <= target[0].size(); ++k) {
    Axis& a = axes[axes.size() - k];
    for (size_t p = 0; p < target.size(); ++p) {
      if (target[p].size() != target[0].size()) return c.Refuse("a shape of different rank in different calls");
      const int64_t want = target[p][target[p].size() - k];
      const Axis before = v->axes.size() < k ? One() : v->axes[v->axes.size() - k];
      const int64_t has = Extent(before, c.w.calls.probes()[p]);
      if (want == 1 || want == has) continue;
      if (before.kind != AxisKind::kOne || v->kind != Kind::kCached || want < 1 || want > kMostHeads ||
          (p > 0 && a.kind != AxisKind::kRepeat) || (p > 0 && a.n != want))
        return c.Refuse("an expansion of other than shared keys and values");
      a = Axis{AxisKind::kRepeat, want, 1, 1};
    }
  }
  return WithAxes(*v, std::move(axes));
}

Result<Values> TransposeNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, Movable(c));
  const onnx::Attribute* perm = c.node.Find("perm");
  Axes axes;
  std::vector<bool> used(v->axes.size(), false);
  for (size_t i = 0; i < v->axes.size(); ++i) {
    const int64_t from = perm ? (i < perm->ints.size() ? perm->ints[i] : -1) : static_cast<int64_t>(v->axes.size() - 1 - i);
    if (from < 0 || from >= static_cast<int64_t>(v->axes.size()) || used[static_cast<size_t>(from)])
      return c.Refuse("a perm that is no permutation");
    used[static_cast<size_t>(from)] = true;
    axes.push_back(v->axes[static_cast<size_t>(from)]);
  }
  return WithAxes(*v, std::move(axes));
}

namespace {

// Columns [begin, end) of the last axis of rows.
Result<Values> Part(const ValuePtr& rows, int64_t begin, int64_t end, const std::string& name) {
  if (begin == 0 && end == rows->axes.back().n) return Single(rows);
  auto out = std::make_shared<Value>();
  out->kind = Kind::kPart;
  out->name = name;
  out->axes = rows->axes;
  out->axes.back() = Feature(end - begin, rows->axes.back().stride);
  out->of = rows;
  out->begin = begin, out->end = end;
  out->last_token = rows->last_token;
  return Single(std::move(out));
}

bool HasColumns(const Value& v) {
  return v.kind == Kind::kRows && !v.axes.empty() && v.axes.back().kind == AxisKind::kFeature && v.axes.back().stride == 1 &&
         v.axes.back().repeat == 1;
}

}  // namespace

Result<Values> SliceNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const auto starts, Lists(c, 1, "starts"));
  SLM_ASSIGN_OR_RETURN(const auto ends, Lists(c, 2, "ends"));
  SLM_ASSIGN_OR_RETURN(const auto axes, Lists(c, 3, "axes"));
  SLM_ASSIGN_OR_RETURN(const auto steps, Lists(c, 4, "steps"));
  ValuePtr v = x->kind == Kind::kPart ? Emitter::AsRows(x) : x;
  if (!v || !Moves(*v)) return c.Refuse("a slice of something that is no row of numbers a token");
  const auto& probes = c.w.calls.probes();
  for (size_t i = 0; i < starts[0].size(); ++i) {
    SLM_ASSIGN_OR_RETURN(const size_t axis, AxisOf(i < axes[0].size() ? axes[0][i] : static_cast<int64_t>(i), v->axes.size()));
    bool whole = true, last = v->axes[axis] == OfKind(AxisKind::kToken);
    int64_t begin = 0, end = 0;
    for (size_t p = 0; p < probes.size(); ++p) {
      if (starts[p].size() != starts[0].size() || ends[p].size() != starts[0].size())
        return c.Refuse("starts and ends of different length");
      if (i < steps[p].size() && steps[p][i] != 1) return c.Refuse("a slice with steps");
      const int64_t n = Extent(v->axes[axis], probes[p]);
      const auto bound = [&](int64_t b) { return std::clamp<int64_t>(b < 0 ? b + n : b, 0, n); };
      const int64_t from = bound(starts[p][i]), to = bound(ends[p][i]);
      if (p > 0 && (from != begin || to != end) && v->axes[axis].kind == AxisKind::kFeature)
        return c.Refuse("a slice that depends on the call");
      begin = from, end = to;
      whole = whole && from == 0 && to == n;
      last = last && from == n - 1 && to == n;
    }
    if (whole) continue;
    if (last && v->kind == Kind::kRows) {
      auto out = std::make_shared<Value>(*v);
      out->axes[axis] = One();
      out->last_token = true;
      v = std::move(out);
      continue;
    }
    if (starts[0].size() != 1 || axis + 1 != v->axes.size() || !HasColumns(*v) || begin >= end)
      return c.Refuse("a slice of other than columns, or than the last token");
    return Part(v, begin, end, c.out());
  }
  return Single(v);
}

Result<Values> SplitNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  SLM_ASSIGN_OR_RETURN(const size_t axis, AxisOf(c.Int("axis", 0), v->axes.size()));
  if (axis + 1 != v->axes.size() || !HasColumns(*v)) return c.Refuse("a split of other than columns");
  SLM_ASSIGN_OR_RETURN(const auto lists, Lists(c, 1, "split"));
  std::vector<int64_t> sizes = lists[0];
  const int64_t n = v->axes.back().n, parts = static_cast<int64_t>(c.node.outputs.size());
  if (sizes.empty() && parts > 0) {  // as equal as it goes, the last one smaller
    const int64_t each = (n + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::clamp<int64_t>(n - i * each, 0, each));
  }
  Values out;
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > n - at) return c.Refuse("parts that are not those of the row");
    SLM_ASSIGN_OR_RETURN(Values part, Part(v, at, at + sizes[i], i < c.node.outputs.size() ? c.node.outputs[i] : ""));
    out.push_back(std::move(part[0]));
    at += sizes[i];
  }
  if (at != n) return c.Refuse("parts that are not those of the row");
  return out;
}

// The cache with new rows behind it; two halves turned; rotated columns with those that are not.
Result<Values> ConcatNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr b, c.In(1));
  if (c.in.size() != 2) return c.Refuse("of other than two values that depend on tokens");
  SLM_ASSIGN_OR_RETURN(const size_t axis, AxisOf(c.Int("axis", 0), a->axes.size()));
  const bool last = axis + 1 == a->axes.size();
  if (a->kind == Kind::kPast && b->kind == Kind::kRows) {
    Axes want = a->axes;
    if (want[axis].kind != AxisKind::kPast) return c.Refuse("a cache that grows along another axis");
    want[axis] = TokenAxisOf(c.w.form);
    if (want != b->axes) return c.Refuse("rows that do not fit the cache");
    auto out = std::make_shared<Value>(*b);
    out->kind = Kind::kCached;
    out->axes = a->axes;
    out->axes[axis] = OfKind(AxisKind::kSlot);
    out->layer = a->layer, out->is_key = a->is_key;
    SLM_ASSIGN_OR_RETURN(out->id, c.w.emit.Materialise(*b));
    out->linear = nullptr;
    out->scale = 1;
    return Single(std::move(out));
  }
  if (last && a->kind == Kind::kPart && b->kind == Kind::kPart && a->negated && !b->negated && a->of == b->of && b->begin == 0 &&
      a->begin == b->end && a->end == 2 * b->end) {
    auto out = std::make_shared<Value>(*a);
    out->kind = Kind::kHalfTurn;
    out->name = c.out();
    out->begin = 0, out->end = a->end;
    out->negated = false;
    out->axes.back() = Feature(a->end);
    return Single(std::move(out));
  }
  if (last && a->kind == Kind::kTurned && b->kind == Kind::kPart && !b->negated && a->of == b->of && b->begin == a->end &&
      b->end == b->of->axes.back().n) {
    auto out = std::make_shared<Value>(*a->with);  // the whole rows with these columns rotated
    return Single(std::move(out));
  }
  return c.Refuse("of values that are neither a cache with new rows nor the halves of a rotation");
}

// Float types are all f32 here; what is narrower was rounded by the runtime, which we do not do.
Result<Values> CastNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  if (v->kind == Kind::kIds) return Single(v);
  const int64_t to = c.Int("to", static_cast<int64_t>(onnx::ElementType::kFloat));
  if (!onnx::IsElementType(to) || onnx::Info(static_cast<onnx::ElementType>(to)).kind != onnx::ElementKind::kFloating ||
      onnx::Info(static_cast<onnx::ElementType>(to)).bits < 16)
    return c.Refuse("a cast of activations to integers or bytes");
  return Single(v);
}

Result<Values> SameNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  return Single(v);
}

}  // namespace slm::importer
