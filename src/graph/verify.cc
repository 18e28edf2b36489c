// Verify: what every graph must hold before and after each pass. A failure is a bug of the builder or of a pass, never of the
// user's file (the builder reports those itself), hence kInternal.
#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "graph/graph.h"
#include "graph/infer.h"

namespace slm::graph {
namespace {

Error Rule(const Node& node, std::string rule) {
  return Error(Code::kInternal, fmt::format("graph: {} ({}): {}", node.name, Info(node.op).name, rule));
}

Error Rule(const Value& value, std::string rule) { return Error(Code::kInternal, fmt::format("graph: value {}: {}", value.name, rule)); }

Status CheckConstant(const Value& v) {
  const Constant& c = *v.constant;
  int64_t n = 1;
  for (int64_t d : v.shape) {
    if (d <= 0) return Rule(v, fmt::format("a constant has shape {}", ShapeText(v.shape)));
    n *= d;
  }
  if (c.parts.empty() == c.data.empty()) return Rule(v, "a constant has parts or data, not both, not neither");
  if (!c.data.empty()) return static_cast<int64_t>(c.data.size()) == n ? Ok() : Status(Rule(v, "data and shape disagree"));
  int64_t rows = 0;
  for (const ConstantPart& p : c.parts) {
    if (!p.tensor || p.tensor->dims.empty()) return Rule(v, "a part without a tensor");
    if (p.row_begin < 0 || p.row_begin >= p.row_end || p.row_end > p.tensor->dims[0])
      return Rule(v, "a part's rows lie outside its tensor");
    if (p.tensor->dims.size() != v.shape.size() || !std::equal(v.shape.begin() + 1, v.shape.end(), p.tensor->dims.begin() + 1))
      return Rule(v, "a part's row shape differs");
    rows += p.row_end - p.row_begin;
  }
  return rows == v.shape[0] ? Ok() : Status(Rule(v, "the parts' rows do not sum up to dim 0"));
}

class Checker {
 public:
  explicit Checker(const Graph& g) : g_(g), defined_(g.values.size(), false) {}

  Status Run() {
    SLM_RETURN_IF_ERROR(Sources());
    for (const Node& node : g_.nodes) SLM_RETURN_IF_ERROR(CheckNode(node));
    if (!InRange(g_.output_logits) || !defined_[g_.output_logits]) return Error(Code::kInternal, "graph: the logits are not computed");
    return Ok();
  }

 private:
  bool InRange(ValueId id) const { return id >= 0 && id < static_cast<ValueId>(g_.values.size()); }

  Status Sources() {
    for (ValueId id : {g_.input_ids, g_.input_positions}) {
      if (!InRange(id)) return Error(Code::kInternal, "graph: a graph input is missing");
      if (g_.values[id].shape != Shape{kT} || g_.values[id].type != ElementType::kI64 || g_.IsConstant(id))
        return Rule(g_.values[id], "a graph input is [T] i64");
      defined_[id] = true;
    }
    for (size_t i = 0; i < g_.values.size(); ++i) {
      if (!g_.values[i].constant) continue;
      SLM_RETURN_IF_ERROR(CheckConstant(g_.values[i]));
      defined_[i] = true;
    }
    return Ok();
  }

  Status CheckNode(const Node& node) {
    if (node.op >= Op::kCount) return Error(Code::kInternal, fmt::format("graph: {}: unknown operator", node.name));
    if (node.name.empty() || !node_names_.insert(node.name).second) return Rule(node, "node names are unique and not empty");
    const Arity arity = ArityOf(node.op);
    const int n_in = static_cast<int>(node.inputs.size()), n_out = static_cast<int>(node.outputs.size());
    if (n_in < arity.min_inputs || n_in > arity.max_inputs) return Rule(node, fmt::format("{} inputs", n_in));
    if (n_out < arity.min_outputs || n_out > arity.max_outputs) return Rule(node, fmt::format("{} outputs", n_out));
    for (int i = 0; i < n_in; ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue && i >= arity.min_inputs) continue;
      if (!InRange(id)) return Rule(node, fmt::format("input {} does not exist", i));
      if (!defined_[id]) return Rule(node, fmt::format("input {} ({}) is not computed before", i, g_.values[id].name));
      SLM_RETURN_IF_ERROR(CheckName(id));
    }
    for (ValueId id : node.outputs) {
      if (!InRange(id)) return Rule(node, "an output does not exist");
      if (defined_[id]) return Rule(node, fmt::format("{} is computed twice", g_.values[id].name));
      defined_[id] = true;
      SLM_RETURN_IF_ERROR(CheckName(id));
    }
    return CheckShapes(node);
  }

  // Names are unique among the values that some node touches.
  Status CheckName(ValueId id) {
    if (!named_.insert(id).second) return Ok();
    const std::string& name = g_.values[id].name;
    if (name.empty() || !value_names_.insert(name).second) return Rule(g_.values[id], "value names are unique and not empty");
    return Ok();
  }

  Status CheckShapes(const Node& node) const {
    auto shapes = InferNode(g_, node);
    if (!shapes.ok()) return Rule(node, shapes.error().message());
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Shape& has = g_.values[node.outputs[i]].shape;
      if (has != shapes.value()[i])
        return Rule(node, fmt::format("output {} has shape {}, the rule says {}", i, ShapeText(has), ShapeText(shapes.value()[i])));
    }
    return Ok();
  }

  const Graph& g_;
  std::vector<bool> defined_;
  std::unordered_set<std::string_view> node_names_, value_names_;
  std::unordered_set<ValueId> named_;
};

}  // namespace

Status Verify(const Graph& g) { return Checker(g).Run(); }

}  // namespace slm::graph
