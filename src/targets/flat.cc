// See flat.h.
#include "targets/flat.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "onnx/inline.h"

namespace slm::targets {
namespace {

constexpr size_t kMostNodes = size_t{1} << 18;  // functions that call functions grow like powers
constexpr int kDeepest = 64;

// Whose nodes are copied.
struct Frame {
  const std::vector<onnx::Opset>& opsets;
  int owner = -1;  // of a body: its node
  onnx::FunctionCall call;
  int depth = 0;
};

// Names inside a function or a body become names of the whole.
struct Scope {
  const Scope* outer = nullptr;  // of a body, which sees the names around it
  std::string prefix;
  std::map<std::string, std::string> names;

  std::string Read(const std::string& name) const {
    if (name.empty()) return name;
    for (const Scope* s = this; s; s = s->outer)
      if (const auto at = s->names.find(name); at != s->names.end()) return at->second;
    return name;
  }
  std::string Define(const std::string& name) {
    if (name.empty() || names.contains(name)) return Read(name);
    return names[name] = prefix + name;
  }
};

class Flattener {
 public:
  Flattener(const onnx::Model& m, const CheckOptions& o) : m_(m), o_(o), functions_(m.functions) {}

  Result<Flat> Run() {
    Scope top;
    Initializers(m_.graph, top);
    // From IR version 4 on an initializer that is an input, too, is only what it is when the caller gives nothing.
    if (m_.ir_version >= 4)
      for (const onnx::ValueInfo& v : m_.graph.inputs) flat_.values[top.Define(v.name)] = {};
    for (const onnx::ValueInfo& v : m_.graph.inputs)
      if (Value& value = flat_.values[top.Define(v.name)]; !value.tensor) {
        value.graph_input = true;
        Declare(value, v.type);
        for (const onnx::Dim& d : value.shape)
          if (d.value < 0) open_.insert(d.symbol.empty() ? "?" : d.symbol);
      }
    Declared(m_.graph, top);
    SLM_RETURN_IF_ERROR(Nodes(m_.graph.nodes, {.opsets = m_.opsets, .call = {}}, top));
    for (const onnx::ValueInfo& v : m_.graph.outputs) flat_.values[top.Read(v.name)].graph_output = true;
    for (const auto& [name, size] : o_.dims)
      if (!fixed_dims_.contains(name)) flat_.unknown_dims.push_back(name);
    flat_.open_dims.assign(open_.begin(), open_.end());
    for (size_t i = 0; i < flat_.nodes.size(); ++i) {
      for (const std::string& out : flat_.nodes[i].node.outputs)
        if (!out.empty()) flat_.values[out].producer = static_cast<int>(i);
      for (const std::string& in : flat_.nodes[i].node.inputs)
        if (!in.empty()) flat_.values[in].consumers.push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < flat_.nodes.size(); ++i) InferNode(flat_, static_cast<int>(i));
    return std::move(flat_);
  }

 private:
  void Declare(Value& value, const onnx::ValueType& type) {
    if (type.kind != onnx::ValueType::Kind::kTensor) return;
    value.type = type.element;
    value.has_shape = type.has_shape;
    value.shape = type.shape;
    for (onnx::Dim& d : value.shape)
      if (const auto at = o_.dims.find(d.symbol); d.value < 0 && at != o_.dims.end()) {
        fixed_dims_.insert(d.symbol);
        d = {at->second, ""};
      }
    for (onnx::Dim& d : value.shape) d = Sane(d);
  }
  void Declared(const onnx::Graph& g, Scope& scope) {
    for (const auto* list : {&g.value_infos, &g.outputs})
      for (const onnx::ValueInfo& v : *list)
        if (Value& value = flat_.values[scope.Define(v.name)]; value.type == onnx::ElementType::kUndefined) Declare(value, v.type);
  }
  void Initializers(const onnx::Graph& g, Scope& scope) {
    for (const onnx::Tensor& t : g.initializers) {
      Value& value = flat_.values[scope.Define(t.name)];
      value.tensor = &t;
      value.fixed = value.has_shape = true;
      value.type = t.type;
      value.shape.clear();
      for (const int64_t d : t.dims) value.shape.push_back(Sane({d, ""}));
    }
    for (const onnx::SparseTensor& t : g.sparse_initializers) {
      Value& value = flat_.values[scope.Define(t.values.name)];
      value.fixed = true;
      value.type = t.values.type;
    }
  }

  Status Nodes(const std::vector<onnx::Node>& nodes, const Frame& frame, Scope& scope) {
    if (frame.depth > kDeepest)
      return Error(Code::kLimit, fmt::format("functions and bodies nested deeper than {}", kDeepest), "inline them first");
    for (const onnx::Node& n : nodes) {
      if (flat_.nodes.size() >= kMostNodes) return Error(Code::kLimit, fmt::format("more than {} nodes", kMostNodes), "split the model");
      FlatNode flat{.node = {}, .opset = onnx::OpsetVersion(frame.opsets, n.domain), .owner = frame.owner, .label = {}};
      flat.node.name = n.name, flat.node.op_type = n.op_type, flat.node.domain = n.domain;
      for (const std::string& in : n.inputs) flat.node.inputs.push_back(scope.Read(in));
      for (const std::string& out : n.outputs) flat.node.outputs.push_back(scope.Define(out));
      flat.label = scope.prefix + (n.name.empty() ? n.op_type + " -> " + (n.outputs.empty() ? "" : n.outputs[0]) : n.name);
      for (const onnx::Attribute& a : n.attributes) Copy(a, frame.call, flat.node);
      if (const onnx::Function* f = functions_.Of(n)) {
        SLM_RETURN_IF_ERROR(Call(*f, flat, frame));
        continue;
      }
      const int index = static_cast<int>(flat_.nodes.size());
      const std::string label = flat.label;
      flat_.nodes.push_back(std::move(flat));
      for (const onnx::Attribute& a : n.attributes)
        for (const onnx::Graph& body : a.graphs) {
          Scope inner{.outer = &scope, .prefix = label + "/" + a.name + ":", .names = {}};
          Initializers(body, inner);
          for (const onnx::ValueInfo& v : body.inputs) Declare(flat_.values[inner.Define(v.name)], v.type);
          Declared(body, inner);
          SLM_RETURN_IF_ERROR(Nodes(body.nodes, {frame.opsets, index, frame.call, frame.depth + 1}, inner));
        }
    }
    return Ok();
  }

  static void Copy(const onnx::Attribute& a, const onnx::FunctionCall& call, onnx::Node& out) {
    const onnx::Attribute* value = call.ValueOf(a);
    if (!value) return;
    // Bodies are nodes of their own here.
    if (value->graphs.empty()) out.attributes.push_back(*value);
    else out.attributes.push_back({.kind = value->kind});
    out.attributes.back().name = a.name;
    out.attributes.back().ref.clear();  // of a damaged default
  }

  Status Call(const onnx::Function& f, const FlatNode& call, const Frame& frame) {
    Scope inner{.outer = nullptr, .prefix = call.label + "/", .names = {}};
    for (size_t i = 0; i < f.inputs.size(); ++i) inner.names[f.inputs[i]] = i < call.node.inputs.size() ? call.node.inputs[i] : "";
    for (size_t i = 0; i < f.outputs.size() && i < call.node.outputs.size(); ++i)
      if (!call.node.outputs[i].empty()) inner.names[f.outputs[i]] = call.node.outputs[i];
    const onnx::Node caller = call.node;
    return Nodes(f.nodes, {f.opsets, frame.owner, {&f, &caller}, frame.depth + 1}, inner);
  }

  const onnx::Model& m_;
  const CheckOptions& o_;
  Flat flat_;
  onnx::FunctionIndex functions_;
  std::set<std::string> open_, fixed_dims_;
};

}  // namespace

bool IsStatic(const std::vector<onnx::Dim>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const onnx::Dim& d) { return d.value >= 0; });
}

bool Value::IsStatic() const { return has_shape && targets::IsStatic(shape); }

int64_t Value::n_values() const {
  if (!IsStatic()) return -1;
  int64_t n = 1;
  for (const onnx::Dim& d : shape)
    if (__builtin_mul_overflow(n, d.value, &n)) return -1;
  return n;
}

std::vector<int64_t> Value::Dims() const {
  std::vector<int64_t> out;
  for (const onnx::Dim& d : shape) out.push_back(d.value);
  return out;
}

const Value* Flat::Find(const std::string& name) const {
  const auto at = name.empty() ? values.end() : values.find(name);
  return at == values.end() ? nullptr : &at->second;
}
const Value* Flat::Input(int node, size_t i) const {
  const onnx::Node& n = nodes[static_cast<size_t>(node)].node;
  return i < n.inputs.size() ? Find(n.inputs[i]) : nullptr;
}
const Value* Flat::Output(int node, size_t i) const {
  const onnx::Node& n = nodes[static_cast<size_t>(node)].node;
  return i < n.outputs.size() ? Find(n.outputs[i]) : nullptr;
}
int Flat::OnlyConsumer(int node, size_t i) const {
  const Value* v = Output(node, i);
  return v && v->consumers.size() == 1 && !v->graph_output ? v->consumers[0] : -1;
}
int Flat::Producer(int node, size_t i) const {
  const Value* v = Input(node, i);
  return v ? v->producer : -1;
}

Result<Flat> Flatten(const onnx::Model& model, const CheckOptions& options) { return Flattener(model, options).Run(); }

}  // namespace slm::targets
