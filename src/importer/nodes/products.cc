// Products with weights and rows of tables. A product waits as Linear: a bias or a split may follow it.
#include <fmt/format.h>

#include <algorithm>

#include "importer/walk.h"

namespace slm::importer {
namespace {

// Rows times the matrix `w` [N, K].
Result<ValuePtr> Product(const Call& c, const ValuePtr& x, const model::Tensor* w) {
  const ValuePtr rows = Emitter::AsRows(x);
  if (!rows) return c.Refuse("a product of something that is no row of numbers a token");
  const Axes all = WithoutOnes(rows->axes);
  const int64_t width = Width(rows->axes);
  if (!InOrder(rows->axes) || (width > 1 && (all.empty() || all.back().n != width)) || width != w->dims[1])
    return c.Refuse(fmt::format("a product over {} of {} values a token", w->dims[1], width));
  SLM_ASSIGN_OR_RETURN(const ValueId id, c.w.emit.Materialise(*rows));
  ValuePtr out = c.Make(Kind::kRows, rows->axes);
  out->axes.back() = Feature(w->dims[0]);
  out->last_token = rows->last_token;
  out->linear = std::make_shared<Linear>(Linear{id, w, 0, w->dims[0]});
  return out;
}

Result<const model::Tensor*> BiasOf(const Call& c, Value& v, int64_t n) {
  if (v.kind == Kind::kFixed && v.weight && !v.weight->scales && v.weight->values->n_values() == n)
    return c.w.emit.weights().Vector(*v.weight->values);
  SLM_ASSIGN_OR_RETURN(const std::vector<float> values, FloatsOf(v));
  if (static_cast<int64_t>(values.size()) != n) return c.Refuse(fmt::format("a bias of {} values for {} rows", values.size(), n));
  return c.w.emit.weights().Vector(v.name, values);
}

Result<ValuePtr> WithBias(const Call& c, const ValuePtr& product, Value& bias) {
  auto out = std::make_shared<Value>(*product);
  out->linear = std::make_shared<Linear>(*product->linear);
  SLM_ASSIGN_OR_RETURN(out->linear->bias, BiasOf(c, bias, out->linear->end - out->linear->begin));
  out->linear->id = graph::kNoValue;
  return out;
}

Result<const model::Tensor*> MatrixOf(const Call& c, const Value& v, Rows rows) {
  if (v.kind != Kind::kFixed) return c.Refuse("a product of two values that depend on tokens, outside of an attention that is known");
  if (!v.weight) return c.Refuse("a product with a computed matrix");
  return c.w.emit.weights().Matrix(*v.weight, rows);
}

// The embedding: rows of a table by token.
Result<Values> Embed(const Call& c, const model::Tensor* table, const Value& ids) {
  Axes axes = ids.axes;
  axes.push_back(Feature(table->dims[1]));
  ValuePtr out = c.Make(Kind::kRows, std::move(axes));
  out->id = c.w.emit.Node(Op::kGather, out->name, {c.w.emit.Rows(*table, 0, table->dims[0]), c.w.emit.ids()}, table->dims[1]);
  return Single(std::move(out));
}

}  // namespace

Result<Values> MatMulNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr b, c.In(1));
  ValuePtr out;
  if (a->kind == Kind::kProbabilities && b->kind == Kind::kCached) {
    SLM_ASSIGN_OR_RETURN(out, Attend(c, *a, *b));
  } else if (b->kind == Kind::kCached) {
    SLM_ASSIGN_OR_RETURN(out, Scores(c, a, *b));
  } else if (a->kind == Kind::kBlockSums && b->kind == Kind::kFixed && b->weight && !b->weight->transposed && !b->weight->scales) {
    out = c.Make(Kind::kOffsets, a->axes);
    out->of = a, out->with = b;
  } else {
    SLM_ASSIGN_OR_RETURN(const model::Tensor* w, MatrixOf(c, *b, Rows::kLast));
    SLM_ASSIGN_OR_RETURN(out, Product(c, a, w));
  }
  return Single(std::move(out));
}

Result<Values> GemmNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr b, c.In(1));
  if (c.Int("transA", 0) != 0 || c.Float("alpha", 1) != 1 || c.Float("beta", 1) != 1) return c.Refuse("Gemm with transA, alpha or beta");
  SLM_ASSIGN_OR_RETURN(const model::Tensor* w, MatrixOf(c, *b, c.Int("transB", 0) != 0 ? Rows::kFirst : Rows::kLast));
  SLM_ASSIGN_OR_RETURN(ValuePtr out, Product(c, a, w));
  if (const ValuePtr bias = c.Optional(2)) {
    SLM_ASSIGN_OR_RETURN(out, WithBias(c, out, *bias));
  }
  return Single(std::move(out));
}

Result<Values> MatMulNBitsNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr a, c.In(0));
  BlockedView v;
  const onnx::Tensor** parts[] = {nullptr, &v.codes, &v.scales, &v.zeros};
  for (size_t i = 1; i < 4; ++i) {
    const ValuePtr part = c.Optional(i);
    if (!part && i == 3) break;
    if (!part || part->kind != Kind::kFixed || !part->weight || part->weight->scales || part->weight->transposed)
      return c.Refuse(fmt::format("input {} is no weight of the file", i));
    *parts[i] = part->weight->values;
  }
  if (c.Optional(4)) return c.Refuse("an order of columns (g_idx)");
  if (c.Int("weight_prepacked", 0) != 0) return c.Refuse("weights packed for another device");
  v.n = c.Int("N", 0), v.k = c.Int("K", 0), v.block = c.Int("block_size", 0), v.bits = c.Int("bits", 4);
  SLM_ASSIGN_OR_RETURN(const model::Tensor* w, c.w.emit.weights().Blocked(v));
  SLM_ASSIGN_OR_RETURN(ValuePtr out, Product(c, a, w));
  if (const ValuePtr bias = c.Optional(5)) {
    SLM_ASSIGN_OR_RETURN(out, WithBias(c, out, *bias));
  }
  return Single(std::move(out));
}

// Rows of the embedding, or the last token's row.
Result<Values> GatherNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr data, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ValuePtr ids, c.In(1));
  if (ids->kind == Kind::kIds) {
    if (data->kind != Kind::kFixed || !data->weight || c.Int("axis", 0) != 0)
      return c.Refuse("tokens as an index of something that is no table");
    SLM_ASSIGN_OR_RETURN(const model::Tensor* table, c.w.emit.weights().Table(*data->weight));
    return Embed(c, table, *ids);
  }
  const ValuePtr rows = Emitter::AsRows(data);
  if (!rows) return c.Refuse("an index into something that is no row of numbers a token");
  SLM_ASSIGN_OR_RETURN(const size_t axis, AxisOf(c.Int("axis", 0), rows->axes.size()));
  const auto& probes = c.w.calls.probes();
  SLM_ASSIGN_OR_RETURN(const auto index, IntsOf(*ids, probes.size()));
  for (size_t p = 0; p < probes.size(); ++p)
    if (rows->axes[axis] != TokenAxisOf(c.w.form) || index[p].size() != 1 || (index[p][0] != -1 && index[p][0] != probes[p].tokens - 1))
      return c.Refuse("other rows than the last token's");
  auto out = std::make_shared<Value>(*rows);
  out->name = c.out();
  out->last_token = true;
  const bool keeps = ids->kind == Kind::kCall ? !ids->at[0].dims.empty()
                     : !ids->weight           ? !ids->array->dims.empty()
                                              : !ids->weight->values->dims.empty();
  if (keeps) out->axes[axis] = One();
  else out->axes.erase(out->axes.begin() + static_cast<std::ptrdiff_t>(axis));
  return Single(std::move(out));
}

Result<Values> GatherBlockQuantizedNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr ids, c.In(1));
  if (ids->kind != Kind::kIds) return c.Refuse("an index that is not the tokens");
  BlockedView v;
  for (const auto& [i, part] : {std::pair<size_t, const onnx::Tensor**>{0, &v.codes}, {2, &v.scales}, {3, &v.zeros}}) {
    const ValuePtr p = c.Optional(i);
    if (!p && i == 3) break;
    if (!p || p->kind != Kind::kFixed || !p->weight || p->weight->scales || p->weight->transposed)
      return c.Refuse(fmt::format("input {} is no weight of the file", i));
    *part = p->weight->values;
  }
  const Dims dims = c.in[0]->weight->dims();  // perhaps of a head's codes, seen as a matrix
  if (dims.size() != 2) return c.Refuse("a table that is no matrix");
  SLM_ASSIGN_OR_RETURN(const size_t quantized, AxisOf(c.Int("quantize_axis", 1), 2));
  SLM_ASSIGN_OR_RETURN(const size_t gathered, AxisOf(c.Int("gather_axis", 0), 2));
  if (quantized != 1 || gathered != 0) return c.Refuse("blocks along other than the columns");
  v.bits = v.codes->type == onnx::ElementType::kUint8 ? c.Int("bits", 4) : 4;
  if (v.bits != 2 && v.bits != 4 && v.bits != 8) return c.Refuse(fmt::format("codes of {} bits", v.bits));
  v.block = c.Int("block_size", 128);
  v.n = dims[0];
  v.k = v.codes->type == onnx::ElementType::kUint8 ? dims[1] * 8 / v.bits : dims[1];
  SLM_ASSIGN_OR_RETURN(const model::Tensor* table, c.w.emit.weights().Blocked(v));
  return Embed(c, table, *ids);
}

Result<Values> AddNode(const Call& c) {
  SLM_ASSIGN_OR_RETURN(ValuePtr a, c.In(0));
  SLM_ASSIGN_OR_RETURN(ValuePtr b, c.In(1));
  if (a->kind == Kind::kFixed || a->kind == Kind::kCall || a->kind == Kind::kOffsets) std::swap(a, b);
  if (b->kind == Kind::kOffsets && a->kind == Kind::kRows && a->linear && a->scale == 1 && !a->linear->bias) {
    const model::Tensor& w = *a->linear->w;
    const Value& sums = *b->of;
    if (a->linear->x != sums.of->id || !w.grouped || w.grouped->group != sums.end || a->linear->end - a->linear->begin != w.dims[0])
      return c.Refuse("sums of blocks that belong to another product");
    auto out = std::make_shared<Value>(*a);
    out->linear = std::make_shared<Linear>(*a->linear);
    SLM_ASSIGN_OR_RETURN(out->linear->w, c.w.emit.weights().WithOffsets(w, *b->with->weight->values));
    out->linear->id = graph::kNoValue;
    return Single(std::move(out));
  }
  if (a->kind == Kind::kTimesTable && b->kind == Kind::kTimesTable) {
    const bool a_first = a->of->kind != Kind::kHalfTurn;
    SLM_ASSIGN_OR_RETURN(ValuePtr out, Turned(c, a_first ? *a : *b, a_first ? *b : *a));
    return Single(std::move(out));
  }
  if (a->kind == Kind::kScores && b->kind == Kind::kCall) {
    SLM_ASSIGN_OR_RETURN(ValuePtr out, Mask(c, *a, *b));
    return Single(std::move(out));
  }
  if (a->kind == Kind::kMean && a->eps == 0) {
    const auto eps = NumberOf(*b);
    if (!eps) return c.Refuse("a mean of squares and something that is no number");
    auto out = std::make_shared<Value>(*a);
    out->eps = static_cast<float>(*eps);
    return Single(std::move(out));
  }
  const ValuePtr rows = Emitter::AsRows(a), other = Emitter::AsRows(b);
  if (!rows) return c.Refuse("a sum of something that is no row of numbers a token");
  if (other) {
    if (WithoutOnes(rows->axes) != WithoutOnes(other->axes)) return c.Refuse("a sum of rows that lie differently");
    SLM_ASSIGN_OR_RETURN(const ValueId x, c.w.emit.Materialise(*rows));
    SLM_ASSIGN_OR_RETURN(const ValueId y, c.w.emit.Materialise(*other));
    const ValuePtr out = c.Rows(graph::kNoValue, rows->axes.size() >= other->axes.size() ? rows->axes : other->axes);
    out->id = c.w.emit.Node(Op::kAdd, out->name, {x, y}, Width(rows->axes));
    return Single(out);
  }
  const bool lone = WithoutOnes(rows->axes).size() <= 2 && InOrder(rows->axes);
  if (rows->linear && rows->scale == 1 && !rows->linear->bias && lone && !NumberOf(*b)) {
    SLM_ASSIGN_OR_RETURN(ValuePtr out, WithBias(c, rows, *b));
    return Single(std::move(out));
  }
  SLM_ASSIGN_OR_RETURN(std::vector<float> values, FloatsOf(*b));
  if (values.size() != 1 && (!lone || static_cast<int64_t>(values.size()) != Width(rows->axes)))
    return c.Refuse("a sum with a constant of another shape");
  SLM_ASSIGN_OR_RETURN(const ValueId x, c.w.emit.Materialise(*rows));
  const ValuePtr out = c.Rows(graph::kNoValue, rows->axes);
  out->id = c.w.emit.Node(Op::kAdd, out->name, {x, c.w.emit.Numbers(b->name, std::move(values))}, Width(rows->axes));
  return Single(out);
}

}  // namespace slm::importer
