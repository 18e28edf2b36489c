// Element-wise operators, and the norms and activations that ONNX spells with them.
#include <fmt/format.h>

#include <cmath>

#include "importer/walk.h"

namespace slm::importer {
namespace {

ValuePtr Scaled(const Call& c, const Value& v, double factor) {
  auto out = std::make_shared<Value>(v);
  out->name = c.out();
  out->scaled = graph::kNoValue;
  if (v.kind == Kind::kScores && v.squashed) out->softcap *= static_cast<float>(factor);
  else out->scale = static_cast<float>(out->scale * factor);
  return out;
}

bool CanScale(const Value& v) { return v.kind == Kind::kRows || v.kind == Kind::kCached || (v.kind == Kind::kScores && !v.masked); }

// A value of the call that differs from token to token: a table of rotations.
bool IsTable(Value& v) { return v.kind == Kind::kCall && !NumberOf(v); }

ValuePtr Step(const Call& c, Kind kind, const ValuePtr& of) {
  ValuePtr out = c.Make(kind, of->axes);
  out->of = of->kind == Kind::kRows || of->kind == Kind::kPart ? of : of->of;
  out->eps = of->eps;
  out->last_token = of->last_token;
  return out;
}

// Are these the same rows, perhaps seen under two names?
bool SameRows(const Call& c, const ValuePtr& a, const ValuePtr& b) {
  if (a == b) return true;
  const ValuePtr x = Emitter::AsRows(a), y = Emitter::AsRows(b);
  if (!x || !y) return false;
  const auto i = c.w.emit.Materialise(*x), j = c.w.emit.Materialise(*y);
  return i.ok() && j.ok() && i.value() == j.value();
}

Result<ValuePtr> Silu(const Call& c, const ValuePtr& x) { return c.Unary(Op::kSwish, x); }

Result<ValuePtr> MulRows(const Call& c, const ValuePtr& a, const ValuePtr& b) {
  if (a == b) return Step(c, Kind::kSquare, a);
  SLM_ASSIGN_OR_RETURN(const ValueId x, c.w.emit.Materialise(*a));
  SLM_ASSIGN_OR_RETURN(const ValueId y, c.w.emit.Materialise(*b));
  if (WithoutOnes(a->axes) != WithoutOnes(b->axes)) return c.Refuse("a product of rows that lie differently");
  ValuePtr out = c.Make(Kind::kRows, a->axes);
  out->last_token = a->last_token || b->last_token;
  out->id = c.w.emit.Node(Op::kMul, out->name, {x, y}, Width(a->axes));
  return out;
}

Result<ValuePtr> MulConstant(const Call& c, const ValuePtr& x, Value& constant) {
  SLM_ASSIGN_OR_RETURN(std::vector<float> values, FloatsOf(constant));
  const ValuePtr rows = Emitter::AsRows(x);
  if (!rows || !InOrder(rows->axes) || WithoutOnes(rows->axes).size() > 2 || static_cast<int64_t>(values.size()) != Width(rows->axes))
    return c.Refuse("a product with a constant of another shape");
  SLM_ASSIGN_OR_RETURN(const ValueId id, c.w.emit.Materialise(*rows));
  ValuePtr out = c.Make(Kind::kRows, rows->axes);
  out->last_token = rows->last_token;
  out->id = c.w.emit.Node(Op::kMul, out->name, {id, c.w.emit.Numbers(constant.name, std::move(values))}, Width(rows->axes));
  return out;
}

}  // namespace

Result<Values> MulNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(ValuePtr b, c.In(1));
  if (a->kind == Kind::kFixed || a->kind == Kind::kCall) std::swap(a, b);
  if (const auto number = NumberOf(*b); number && CanScale(*a)) return Single(Scaled(c, *a, *number));
  if (IsTable(*b) && (a->kind == Kind::kRows || a->kind == Kind::kPart || a->kind == Kind::kHalfTurn)) {
    ValuePtr out = c.Make(Kind::kTimesTable, a->axes);
    out->of = a;
    out->table = c.node.inputs[c.in[0] == b ? 0 : 1];
    return Single(std::move(out));
  }
  if (a->kind == Kind::kNormed) {
    SLM_ASSIGN_OR_RETURN(ValuePtr out, Norm(c, a->of, *b, a->eps, c.Make(Kind::kRows, {})->name));
    return Single(std::move(out));
  }
  if (b->kind == Kind::kFixed) {
    SLM_ASSIGN_OR_RETURN(ValuePtr out, MulConstant(c, a, *b));
    return Single(std::move(out));
  }
  if (b->kind != Kind::kInverse && b->kind != Kind::kSigmoid) std::swap(a, b);
  if (b->kind == Kind::kInverse && SameRows(c, a, b->of)) {
    ValuePtr out = Step(c, Kind::kNormed, b);
    out->axes = a->axes;
    return Single(std::move(out));
  }
  if (b->kind == Kind::kSigmoid && SameRows(c, a, b->of)) {
    SLM_ASSIGN_OR_RETURN(ValuePtr out, Silu(c, a));
    return Single(std::move(out));
  }
  const ValuePtr x = a->kind == Kind::kSigmoid ? a : Emitter::AsRows(a), y = b->kind == Kind::kSigmoid ? b : Emitter::AsRows(b);
  if (!x || !y) return c.Refuse("a product of something that is no row of numbers a token");
  SLM_ASSIGN_OR_RETURN(ValuePtr out, MulRows(c, x, y));
  return Single(std::move(out));
}

Result<Values> DivNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr b, c.In(1));
  if (b->kind == Kind::kRoot) {
    const auto one = NumberOf(*a);
    if (one && *one == 1) return Single(Step(c, Kind::kInverse, b));
    if (!SameRows(c, a, b->of)) return c.Refuse("rows over the root of other rows' mean square");
    ValuePtr out = Step(c, Kind::kNormed, b);
    out->axes = a->axes;
    return Single(std::move(out));
  }
  const auto number = NumberOf(*b);
  const ValuePtr rows = Emitter::AsRows(a);
  if (!number || *number == 0 || (!rows && !CanScale(*a))) return c.Refuse("a quotient by something that is no number");
  return Single(Scaled(c, rows ? *rows : *a, 1 / *number));
}

Result<Values> NegNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (a->kind != Kind::kPart) {
    if (!CanScale(*a)) return c.Refuse("the negative of something that is no row of numbers a token");
    return Single(Scaled(c, *a, -1));
  }
  auto out = std::make_shared<Value>(*a);
  out->negated = !a->negated;
  return Single(std::move(out));
}

Result<Values> PowNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr b, c.In(1));
  const auto power = NumberOf(*b);
  const ValuePtr rows = Emitter::AsRows(a);
  if (power && *power == 2 && rows) return Single(Step(c, Kind::kSquare, rows));
  if (power && *power == 0.5 && a->kind == Kind::kMean) return Single(Step(c, Kind::kRoot, a));
  if (power && *power == -0.5 && a->kind == Kind::kMean) return Single(Step(c, Kind::kInverse, a));
  if (power && *power == 3 && rows) {
    SLM_ASSIGN_OR_RETURN(const ValueId x, c.w.emit.Materialise(*rows));
    const ValueId square = c.w.emit.Node(Op::kMul, rows->name + ".square", {x, x}, Width(rows->axes));
    ValuePtr out = c.Make(Kind::kRows, rows->axes);
    out->last_token = rows->last_token;
    out->id = c.w.emit.Node(Op::kMul, out->name, {square, x}, Width(rows->axes));
    return Single(std::move(out));
  }
  return c.Refuse("a power other than 2 and 3, and ±0.5 of a mean of squares");
}

Result<Values> SqrtNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (a->kind != Kind::kMean) return c.Refuse("the root of something that is no mean of squares");
  return Single(Step(c, Kind::kRoot, a));
}

Result<Values> ReciprocalNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (a->kind != Kind::kRoot) return c.Refuse("1 over something that is no root of a mean of squares");
  return Single(Step(c, Kind::kInverse, a));
}

namespace {
// The one axis of a reduction, from the attribute or the input.
Result<size_t> ReducedAxis(const Call& c, size_t rank) {
  const onnx::Attribute* attribute = c.node.Find("axes");
  std::vector<int64_t> axes = attribute ? attribute->ints : std::vector<int64_t>();
  if (const ValuePtr given = c.Optional(1)) {
    SLM_ASSIGN_OR_RETURN(const auto lists, IntsOf(*given, 1));
    axes = lists[0];
  }
  if (axes.size() != 1) return c.Refuse("a reduction of other than one axis");
  return AxisOf(axes[0], rank);
}
}  // namespace

Result<Values> ReduceMeanNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const size_t axis, ReducedAxis(c, a->axes.size()));
  if (a->kind != Kind::kSquare || axis + 1 != a->axes.size() || c.Int("keepdims", 1) != 1)
    return c.Refuse("a mean of something other than squares of a row");
  ValuePtr out = Step(c, Kind::kMean, a);
  out->axes.back() = One();
  return Single(std::move(out));
}

// Sums of blocks of columns: what the minimums of a block type are multiplied with.
Result<Values> ReduceSumNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const size_t axis, ReducedAxis(c, a->axes.size()));
  const ValuePtr rows = Emitter::AsRows(a);
  if (!rows || !InOrder(rows->axes) || axis + 1 != rows->axes.size() || axis < 1 || c.Int("keepdims", 1) != 0)
    return c.Refuse("a sum of other than blocks of a row");
  const int64_t block = rows->axes[axis].n;
  ValuePtr out = c.Make(Kind::kBlockSums, rows->axes);
  out->axes.pop_back();
  out->of = c.Make(Kind::kRows, rows->axes);
  SLM_ASSIGN_OR_RETURN(out->of->id, c.w.emit.Materialise(*rows));
  out->end = block;
  return Single(std::move(out));
}

Result<Values> SigmoidNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  const ValuePtr rows = Emitter::AsRows(a);
  if (!rows) return c.Refuse("of something that is no row of numbers a token");
  return Single(Step(c, Kind::kSigmoid, rows));
}

Result<Values> TanhNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (a->kind == Kind::kScores && !a->squashed && !a->masked) {
    auto out = std::make_shared<Value>(*a);
    out->squashed = true, out->softcap = 1;
    return Single(std::move(out));
  }
  SLM_ASSIGN_OR_RETURN(ValuePtr out, c.Unary(Op::kTanh, a));
  return Single(std::move(out));
}

Result<Values> SwishNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (c.Float("alpha", 1) != 1) return c.Refuse("Swish with alpha");
  SLM_ASSIGN_OR_RETURN(ValuePtr out, Silu(c, a));
  return Single(std::move(out));
}

Result<Values> QuickGeluNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (c.Float("alpha", 1.702f) != 1) return c.Refuse("QuickGelu with an alpha other than 1");
  SLM_ASSIGN_OR_RETURN(ValuePtr out, Silu(c, a));
  return Single(std::move(out));
}

Result<Values> GeluNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  const std::string form = c.Text("approximate", "none");
  if (form != "none" && form != "tanh") return c.Refuse("Gelu of a form that is not known");
  SLM_ASSIGN_OR_RETURN(ValuePtr out, c.Unary(Op::kGelu, a, {{AttrKey::kApproximate, form}}));
  return Single(std::move(out));
}

Result<Values> FastGeluNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  if (c.Optional(1)) return c.Refuse("FastGelu with a bias");
  SLM_ASSIGN_OR_RETURN(ValuePtr out, c.Unary(Op::kGelu, a, {{AttrKey::kApproximate, std::string("tanh")}}));
  return Single(std::move(out));
}

}  // namespace slm::importer
