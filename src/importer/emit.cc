// See emit.h.
#include "importer/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace slm::importer {

using graph::AttrKey;
using graph::kNoValue;
using graph::kT;
using graph::Op;
using graph::ValueId;

Emitter::Emitter() {
  g_.input_ids = g_.AddValue({Unique("input_ids"), {kT}, graph::ElementType::kI64, nullptr});
  g_.input_positions = g_.AddValue({Unique("position_ids"), {kT}, graph::ElementType::kI64, nullptr});
}

std::string Emitter::Unique(std::string name) {
  if (name.empty()) name = "value";
  std::string candidate = name;
  for (int i = 2; !names_.insert(candidate).second; ++i) candidate = fmt::format("{}#{}", name, i);
  return candidate;
}

ValueId Emitter::Node(Op op, const std::string& name, std::vector<ValueId> inputs, int64_t width, std::vector<graph::Attr> attrs) {
  const std::string unique = Unique(name);
  const ValueId out = g_.AddValue({unique, {kT, width}, graph::ElementType::kF32, nullptr});
  g_.nodes.push_back({op, unique, std::move(inputs), {out}, std::move(attrs), -1});
  return out;
}

ValueId Emitter::Reshaped(const std::string& name, ValueId x, graph::Shape shape) {
  const ValueId out = Node(Op::kReshape, name, {x}, 1);
  g_.values[out].shape = std::move(shape);
  return out;
}

ValueId Emitter::Rows(const model::Tensor& t, int64_t begin, int64_t end) {
  const auto key = std::make_tuple(&t, begin, end);
  if (const auto at = constants_.find(key); at != constants_.end()) return at->second;
  auto constant = std::make_shared<graph::Constant>();
  constant->parts.push_back({&t, begin, end});
  graph::Shape shape = t.dims;
  shape[0] = end - begin;
  return constants_[key] = g_.AddValue({Unique(t.name), std::move(shape), graph::ElementType::kF32, std::move(constant)});
}

ValueId Emitter::Numbers(const std::string& name, std::vector<float> values) {
  auto constant = std::make_shared<graph::Constant>();
  const auto n = static_cast<int64_t>(values.size());
  constant->data = std::move(values);
  return g_.AddValue({Unique(name), {n}, graph::ElementType::kF32, std::move(constant)});
}

// One row stands in: BuildGraph of the door puts in as many as the context has.
ValueId Emitter::Table(const std::string& name, int64_t half) {
  const ValueId v = Numbers(name, std::vector<float>(static_cast<size_t>(half)));
  g_.values[v].shape = {1, half};
  return v;
}

const RopeTable& Emitter::Tables(const std::string& cos, const std::string& sin, int64_t half, int64_t columns) {
  const auto [at, is_new] = tables_.try_emplace({nullptr, nullptr, cos + "\n" + sin}, tables_list_.size());
  if (is_new) {
    RopeTable t;
    t.half = half;
    t.cos = Table("rope.cos", half), t.sin = Table("rope.sin", half);
    t.cos_value = cos, t.sin_value = sin;
    t.columns = columns;
    tables_list_.push_back(std::move(t));
  }
  return tables_list_[at->second];
}

RopeTable& Emitter::TablesOfFile(const Value& cos, const Value& sin, int64_t half) {
  const auto place = [](const Value& v) -> const void* { return v.weight ? static_cast<const void*>(v.weight->values) : v.array.get(); };
  const auto [at, is_new] = tables_.try_emplace({place(cos), place(sin), ""}, tables_list_.size());
  if (is_new) {
    RopeTable t;
    t.half = half;
    t.cos = Table(cos.name, half), t.sin = Table(sin.name, half);
    tables_list_.push_back(std::move(t));
  }
  return tables_list_[at->second];
}

ValuePtr Emitter::AsRows(const ValuePtr& v) {
  if (!v || v->kind == Kind::kRows) return v;
  if (v->kind != Kind::kPart || v->negated || !v->of->linear || v->of->scale != 1 || !InOrder(v->of->axes)) return nullptr;
  const Axes all = WithoutOnes(v->of->axes);
  if (all.empty() || all.back().n != Width(v->of->axes)) return nullptr;
  auto rows = std::make_shared<Value>(*v->of);
  rows->name = v->name;
  rows->axes = v->axes;
  rows->linear = std::make_shared<Linear>(*v->of->linear);
  Linear& l = *rows->linear;
  l.id = kNoValue;
  if (l.bias) l.bias_begin += v->begin;
  l.end = l.begin + v->end;
  l.begin += v->begin;
  return rows;
}

ValueId Emitter::Unscaled(Value& v) {
  if (v.id != kNoValue) return v.id;
  SLM_ASSERT(v.linear != nullptr);
  Linear& l = *v.linear;
  if (l.id != kNoValue) return l.id;
  std::vector<ValueId> inputs{l.x, Rows(*l.w, l.begin, l.end)};
  if (l.bias) inputs.push_back(Rows(*l.bias, l.bias_begin, l.bias_begin + (l.end - l.begin)));
  return l.id = Node(Op::kGemm, v.name, std::move(inputs), l.end - l.begin, {{AttrKey::kTransB, int64_t{1}}});
}

Result<ValueId> Emitter::Materialise(Value& v) {
  const int64_t width = Width(v.axes);
  if (v.kind == Kind::kRows) {
    const ValueId id = Unscaled(v);
    if (v.scale == 1) return id;
    if (v.scaled == kNoValue) v.scaled = Node(Op::kMul, v.name, {id, Numbers(v.name + ".factor", {v.scale})}, width);
    return v.scaled;
  }
  if (v.id != kNoValue) return v.id;
  switch (v.kind) {
    case Kind::kSigmoid: {
      SLM_ASSIGN_OR_RETURN(const ValueId x, Materialise(*v.of));
      return v.id = Node(Op::kSigmoid, v.name, {x}, width);
    }
    case Kind::kSquare: {
      SLM_ASSIGN_OR_RETURN(const ValueId x, Materialise(*v.of));
      return v.id = Node(Op::kMul, v.name, {x, x}, width);
    }
    default: break;
  }
  return Error(Code::kUnsupported, "value '" + v.name + "' is part of no norm, rotation or attention that is known",
               "export the model with a plain decoder graph, or with ONNX Runtime GenAI's model builder");
}

void Emitter::NumberLayers() {
  // Backwards from each attention to the sum or the embedding that its layer reads; what lies between two of them is the first one's.
  std::vector<int> own(g_.nodes.size(), -1);
  int layer = 0, last_sum = -1;
  std::vector<int> producer(g_.values.size(), -1);
  const auto is_sum = [&](const graph::Node& n) { return n.op == Op::kAdd && !g_.IsConstant(n.inputs[0]) && !g_.IsConstant(n.inputs[1]); };
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    graph::Node& n = g_.nodes[i];
    for (const ValueId v : n.outputs) producer[static_cast<size_t>(v)] = static_cast<int>(i);
    if (is_sum(n)) last_sum = static_cast<int>(i);
    if (n.op != Op::kGroupQueryAttention) continue;
    std::vector<int> open{static_cast<int>(i)};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      if (own[static_cast<size_t>(at)] >= 0) continue;
      own[static_cast<size_t>(at)] = layer;
      for (const ValueId v : g_.nodes[static_cast<size_t>(at)].inputs) {
        const int p = v == kNoValue ? -1 : producer[static_cast<size_t>(v)];
        if (p >= 0 && !is_sum(g_.nodes[static_cast<size_t>(p)]) && g_.nodes[static_cast<size_t>(p)].op != Op::kGather) open.push_back(p);
      }
    }
    ++layer;
  }
  int at = -1;
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    graph::Node& n = g_.nodes[i];
    if (n.op == Op::kGroupQueryAttention) at = own[i];
    n.layer = own[i] >= 0 ? own[i] : static_cast<int>(i) <= last_sum ? at : -1;
  }
}

}  // namespace slm::importer
