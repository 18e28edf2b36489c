// See walk.h: which way a node goes. What is known without tokens is computed here; the rest goes to the functions of nodes.inc.
#include "importer/walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/quoted.h"

namespace slm::importer {
namespace {

using model::Quoted;
using reference::Array;

constexpr struct Row {
  const char* domain;
  const char* name;
  Handler function;
} kRows[] = {
#define SLM_NODE(domain, name, function) {domain, name, function},
#include "importer/nodes.inc"
#undef SLM_NODE
};

constexpr int64_t kMostKept = int64_t{1} << 25;  // values: 256 MiB; the mask of 131072 tokens takes a hundredth

std::string NameOf(const onnx::Node& n) { return n.domain.empty() ? n.op_type : n.domain + "." + n.op_type; }

// In messages. Without a name its number, which is not the file's where functions and branches were put in.
std::string Place(const onnx::Node& n, size_t i) {
  return fmt::format("node {} ({})", n.name.empty() ? std::to_string(i) : Quoted(n.name), Quoted(NameOf(n)));
}

bool IsStandard(const onnx::Node& n, const char* op) { return n.domain.empty() && n.op_type == op; }

bool IsKnownWithoutTokens(const ValuePtr& v) { return !v || v->kind == Kind::kFixed || v->kind == Kind::kCall; }

ValuePtr Fixed(const std::string& name, Array a) {
  auto v = std::make_shared<Value>();
  v->name = name;
  v->array = std::make_shared<const Array>(std::move(a));
  return v;
}

bool IsUnreadWeight(const ValuePtr& v) { return v && v->kind == Kind::kFixed && v->weight; }

bool IsFloating(onnx::ElementType t) { return onnx::Info(t).kind == onnx::ElementKind::kFloating; }

// Nodes that leave a weight what it is: its bytes seen in another way. Null: the node does something else.
ValuePtr SameWeight(const Call& c) {
  const onnx::Node& n = c.node;
  if (c.in.empty() || !IsUnreadWeight(c.in[0])) return nullptr;
  const WeightView& w = *c.in[0]->weight;
  const bool matrix = w.values->dims.size() == 2 && w.shape.empty();
  auto out = std::make_shared<Value>(*c.in[0]);
  out->name = c.out();
  if (IsStandard(n, "Identity")) return out;
  if (IsStandard(n, "Transpose") && matrix) {
    const onnx::Attribute* perm = n.Find("perm");
    if (perm && perm->ints == std::vector<int64_t>{0, 1}) return out;
    out->weight->transposed = !w.transposed;
    out->array = nullptr;
    return out;
  }
  if (IsStandard(n, "Reshape") && !w.scales && !w.transposed && c.Optional(1)) {  // codes that an embedding and the head share
    const auto target = IntsOf(*c.in[1], 1);
    int64_t known = 1, open = 0;
    for (const int64_t d : target.ok() ? target.value()[0] : std::vector<int64_t>{0}) {
      if (d < -1 || d == 0 || (d > 0 && known > w.values->n_values() / d)) return nullptr;
      d == -1 ? ++open : known *= d;
    }
    if (open > 1 || w.values->n_values() % known != 0 || (open == 0 && known != w.values->n_values())) return nullptr;
    out->weight->shape = target.value()[0];
    for (int64_t& d : out->weight->shape)
      if (d == -1) d = w.values->n_values() / known;
    out->array = nullptr;
    return out;
  }
  // To f32 nothing is lost; to a smaller type the runtime would round, which we do not.
  const bool widens =
      c.Int("to", 0) == static_cast<int64_t>(onnx::ElementType::kFloat) && IsFloating(w.scales ? w.scales->type : w.values->type);
  if (IsStandard(n, "Cast") && widens && w.values->type != onnx::ElementType::kDouble && (matrix || w.values->dims.size() == 1)) {
    out->array = nullptr;
    return out;
  }
  if (!IsStandard(n, "DequantizeLinear") || !matrix || w.scales || w.transposed) return nullptr;
  if (!c.Optional(1) || !IsUnreadWeight(c.in[1]) || (c.Optional(2) && !IsUnreadWeight(c.in[2]))) return nullptr;
  for (const size_t i : {size_t{1}, size_t{2}}) {  // scales and zero points as they lie in the file
    const ValuePtr v = c.Optional(i) ? c.in[i] : nullptr;
    if (v && (v->weight->transposed || v->weight->scales || !v->weight->shape.empty())) return nullptr;
  }
  out->weight->scales = c.in[1]->weight->values;
  out->weight->zeros = c.Optional(2) ? c.in[2]->weight->values : nullptr;
  out->weight->axis = c.Int("axis", 1);
  out->weight->block = c.Int("block_size", 0);
  out->array = nullptr;
  return out;
}

Result<Values> Computed(const Call& c) {
  Walk& w = c.w;
  const bool per_call = std::any_of(c.in.begin(), c.in.end(), [](const ValuePtr& v) { return v && v->kind == Kind::kCall; });
  Values out;
  for (const std::string& name : c.node.outputs) {
    out.push_back(std::make_shared<Value>());
    out.back()->name = name;
    if (per_call) out.back()->kind = Kind::kCall;
  }
  for (size_t p = 0; p < (per_call ? w.calls.probes().size() : 1); ++p) {
    std::vector<std::shared_ptr<const Array>> held;
    std::vector<const Array*> inputs;
    for (const ValuePtr& v : c.in) {
      inputs.push_back(nullptr);
      if (!v) continue;
      if (v->kind == Kind::kCall) {
        inputs.back() = &v->at[p];
        continue;
      }
      SLM_ASSIGN_OR_RETURN(auto array, ArrayOfFixed(*v));
      held.push_back(array);
      inputs.back() = array.get();
    }
    SLM_ASSIGN_OR_RETURN(auto made, w.calls.Run(c.node, inputs, w.work));
    for (size_t i = 0; i < out.size(); ++i) {
      if (made[i].type == onnx::ElementType::kString) return c.Refuse("strings");
      w.n_kept += made[i].size();
      if (w.n_kept > kMostKept)
        return Error(Code::kLimit, "masks and shapes of more values than any decoder's", "export the model in another form");
      if (per_call) out[i]->at.push_back(std::move(made[i]));
      else out[i]->array = std::make_shared<const Array>(std::move(made[i]));
    }
  }
  return out;
}

Result<Values> ShapeOfValue(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const ValuePtr v, c.In(0));
  if (v->kind == Kind::kFixed) {
    return Single(Fixed(c.out(), reference::ShapeContent(c.node, v->weight ? v->weight->dims() : v->array->dims)));
  }
  auto out = std::make_shared<Value>();
  out->kind = Kind::kCall;
  out->name = c.out();
  for (size_t p = 0; p < c.w.calls.probes().size(); ++p) {
    const Dims dims = v->kind == Kind::kCall ? v->at[p].dims : ShapeOf(v->axes, c.w.calls.probes()[p]);
    out->at.push_back(reference::ShapeContent(c.node, dims));
  }
  return Single(std::move(out));
}

// A matrix that stands in a node: a weight like those of the file's list.
ValuePtr ConstantWeight(const Call& c) {
  const onnx::Attribute* value = IsStandard(c.node, "Constant") ? c.node.Find("value") : nullptr;
  if (!value || value->tensors.size() != 1 || value->tensors[0].dims.size() < 2) return nullptr;
  auto v = std::make_shared<Value>();
  v->name = c.out();
  v->weight = WeightView{};
  v->weight->values = &value->tensors[0];  // stays where it is when nodes move
  return v;
}

Result<Values> Interpret(const Call& c) {
  const onnx::Node& n = c.node;
  for (const onnx::Attribute& a : n.attributes)
    if (!a.graphs.empty()) return c.Refuse("a graph inside the node");
  if (IsStandard(n, "Shape") || IsStandard(n, "Size")) return ShapeOfValue(c);
  if (std::all_of(c.in.begin(), c.in.end(), IsKnownWithoutTokens)) {
    if (ValuePtr weight = ConstantWeight(c)) return Single(std::move(weight));
    if (ValuePtr same = SameWeight(c)) return Single(std::move(same));
    return Computed(c);
  }
  for (const Row& r : kRows)
    if (n.domain == r.domain && n.op_type == r.name) return r.function(c);
  return Error(Code::kUnsupported, "the operator has no place in a decoder that this build runs",
               "run the model with ONNX Runtime, or name another form of it");
}

}  // namespace

Result<ValuePtr> Call::In(size_t i) const {
  if (i < in.size() && in[i]) return in[i];
  return Error(Code::kCorrupt, fmt::format("input {} is missing", i), "the file is damaged: export or fetch it again");
}

float Call::Float(const char* name, float otherwise) const {
  const onnx::Attribute* a = node.Find(name);
  return a && a->floats.size() == 1 ? a->floats[0] : otherwise;
}
std::string Call::Text(const char* name, const std::string& otherwise) const {
  const onnx::Attribute* a = node.Find(name);
  return a && a->strings.size() == 1 ? a->strings[0] : otherwise;
}

ValuePtr Call::Make(Kind kind, Axes axes) const {
  auto v = std::make_shared<Value>();
  v->kind = kind;
  v->name = node.name.empty() ? out() : node.name;
  v->axes = std::move(axes);
  return v;
}

ValuePtr Call::Rows(graph::ValueId id, Axes axes) const {
  ValuePtr v = Make(Kind::kRows, std::move(axes));
  v->id = id;
  for (const ValuePtr& x : in) v->last_token = v->last_token || (x && x->last_token);
  return v;
}

Error Call::Refuse(const std::string& what) const {
  return Error(Code::kUnsupported, what, "run the model with ONNX Runtime, or name another form of it");
}

Result<ValuePtr> Call::Unary(graph::Op op, const ValuePtr& x, std::vector<graph::Attr> attrs) const {
  const ValuePtr rows = Emitter::AsRows(x);
  if (!rows) return Refuse("of something that is no row of numbers a token");
  SLM_ASSIGN_OR_RETURN(const graph::ValueId id, w.emit.Materialise(*rows));
  ValuePtr v = Make(Kind::kRows, rows->axes);
  v->last_token = rows->last_token;
  v->id = w.emit.Node(op, v->name, {id}, Width(rows->axes), std::move(attrs));
  return v;
}

Result<size_t> AxisOf(int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) return Error(Code::kCorrupt, fmt::format("axis {} of {} dimensions", axis, n), "the file is damaged");
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

Result<std::vector<float>> FloatsOf(Value& v) {
  if (v.kind == Kind::kFixed && v.weight && !v.weight->scales) return FloatValues(*v.weight->values);
  if (v.kind != Kind::kFixed) return Error(Code::kUnsupported, "'" + v.name + "' is no weight", "export the model in another form");
  SLM_ASSIGN_OR_RETURN(const auto a, ArrayOfFixed(v));
  std::vector<float> out;
  for (int64_t i = 0; i < a->size(); ++i) out.push_back(static_cast<float>(NumberAt(*a, i)));
  return out;
}

Status WalkNodes(Walk& w) {
  const std::vector<onnx::Node>& nodes = w.onnx.graph.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    while (i < nodes.size() && IsStandard(nodes[i], "If")) {
      const std::string place = Place(nodes[i], i);
      if (const Status s = ResolveIf(w, i); !s.ok()) return s.error().At(place);
    }
    if (i == nodes.size()) break;
    const onnx::Node& n = nodes[i];
    Call c{w, n, {}};
    for (const std::string& name : n.inputs) {
      const auto at = w.values.find(name);
      if (!name.empty() && at == w.values.end())
        return Error(Code::kCorrupt, Place(n, i) + ": input " + Quoted(name) + " has no value",
                     "the file is damaged: export or fetch it again");
      c.in.push_back(name.empty() ? nullptr : at->second);
    }
    auto made = Interpret(c);
    if (!made.ok()) return made.error().At(Place(n, i));
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      if (n.outputs[k].empty()) continue;
      if (k < made.value().size() && made.value()[k]) w.values[n.outputs[k]] = made.value()[k];
      else return Error(Code::kUnsupported, fmt::format("{}: its output {}", Place(n, i), k), "export the model in another form");
    }
  }
  return Ok();
}

}  // namespace slm::importer
