// Norms: as one operator, or as what the steps of an exported graph add up to.
#include <fmt/format.h>

#include "importer/walk.h"

namespace slm::importer {

Result<ValuePtr> Norm(const Call& c, const ValuePtr& x, Value& weight, float eps, const std::string& name) {
  const ValuePtr rows = Emitter::AsRows(x);
  if (!rows || rows->axes.empty()) return c.Refuse("a norm of something that is no row of numbers a token");
  const Axis& last = rows->axes.back();
  if (last.kind != AxisKind::kFeature || last.stride != 1) return c.Refuse("a norm over another axis than the last");
  SLM_ASSIGN_OR_RETURN(std::vector<float> w, FloatsOf(weight));
  if (static_cast<int64_t>(w.size()) != last.n) return c.Refuse(fmt::format("a norm over {} values with a weight of {}", last.n, w.size()));
  const int64_t width = Width(rows->axes);
  SLM_ASSIGN_OR_RETURN(ValueId id, c.w.emit.Materialise(*rows));
  const ValueId vector = c.w.emit.Numbers(weight.name, std::move(w));
  const bool heads = last.n != width;
  if (heads) id = c.w.emit.Reshaped(name + ".heads", id, {graph::kT, width / last.n, last.n});
  ValueId out = c.w.emit.Node(Op::kRmsNorm, name, {id, vector}, width, {{AttrKey::kEpsilon, eps}});
  if (heads) {
    c.w.emit.graph().values[out].shape = {graph::kT, width / last.n, last.n};
    out = c.w.emit.Reshaped(name + ".flat", out, {graph::kT, width});
  }
  ValuePtr v = c.Make(Kind::kRows, rows->axes);
  v->last_token = rows->last_token;
  v->id = out;
  return v;
}

Result<Values> RmsNormNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr w, c.In(1));
  SLM_ASSIGN_OR_RETURN(const size_t axis, AxisOf(c.Int("axis", -1), x->axes.size()));
  if (axis + 1 != x->axes.size() || c.Optional(2)) return c.Refuse("a norm over other than the last axis, or with a bias");
  SLM_ASSIGN_OR_RETURN(ValuePtr out, Norm(c, x, *w, c.Float("epsilon", 1e-5f), c.Make(Kind::kRows, {})->name));
  return Single(std::move(out));
}

// (x, skip, weight) -> (norm(x + skip), , , x + skip)
Result<Values> SkipRmsNormNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr b, c.In(1));
  SLM_ASSIGN_OR_RETURN(const ValuePtr w, c.In(2));
  const ValuePtr x = Emitter::AsRows(a), skip = Emitter::AsRows(b);
  if (c.Optional(3)) return c.Refuse("a skip norm with a bias");
  if (!x || !skip || WithoutOnes(x->axes) != WithoutOnes(skip->axes)) return c.Refuse("a sum of rows that lie differently");
  SLM_ASSIGN_OR_RETURN(const ValueId i, c.w.emit.Materialise(*x));
  SLM_ASSIGN_OR_RETURN(const ValueId j, c.w.emit.Materialise(*skip));
  const ValuePtr sum = c.Rows(kNoValue, x->axes);
  sum->id = c.w.emit.Node(Op::kAdd, sum->name + ".sum", {i, j}, Width(x->axes));
  SLM_ASSIGN_OR_RETURN(ValuePtr normed, Norm(c, sum, *w, c.Float("epsilon", 1e-5f), sum->name));
  normed->last_token = sum->last_token;
  return Values{std::move(normed), nullptr, nullptr, sum};
}

}  // namespace slm::importer
