// RunGraph: the nodes one after the other, each value kept until the end. See reference.h.
#include <map>

#include "reference/call.h"

namespace slm::reference {
namespace {

struct Row {
  const char* domain;
  const char* name;
  int first_opset;
  Operator function;
};

constexpr Row kRows[] = {
#define SLM_OP(domain, name, first_opset, function) {domain, name, first_opset, function},
#include "reference/operators.inc"
#undef SLM_OP
};

const Row* FindRow(const onnx::Node& n) {
  for (const Row& r : kRows)
    if (n.domain == r.domain && n.op_type == r.name) return &r;
  return nullptr;
}

using Values = std::map<std::string, Array, std::less<>>;

constexpr int64_t kMaxKept = int64_t{1} << 26;  // values of all arrays of a run: 512 MiB

std::string NameOf(const onnx::Node& n) { return n.domain.empty() ? n.op_type : n.domain + "." + n.op_type; }

Result<const Row*> RowOf(const onnx::Model& model, const onnx::Node& n) {
  const int64_t opset = model.OpsetVersion(n.domain);
  const Row* row = FindRow(n);
  for (const onnx::Function& f : model.functions)
    if (f.name == n.op_type && f.domain == n.domain) return Refuse("function " + NameOf(n) + " of the model");
  if (!row) return Refuse("operator " + NameOf(n));
  if (opset == 0) return Wrong("operator set '" + n.domain + "' is not imported");
  if (opset < row->first_opset || (n.domain.empty() && opset > onnx::kNewestOpset))
    return Refuse(fmt::format("{} of operator set {}; known from {} to {}", NameOf(n), opset, row->first_opset, onnx::kNewestOpset));
  for (const onnx::Attribute& a : n.attributes)
    if (!a.graphs.empty()) return Refuse(NameOf(n) + " with a graph inside");
  return row;
}

Status RunNode(const onnx::Node& n, const Row& row, int64_t opset, Values& values, int64_t& kept) {
  std::vector<const Array*> inputs;
  for (const std::string& name : n.inputs) {
    const auto at = values.find(name);
    if (!name.empty() && at == values.end()) return Wrong("input '" + name + "' has no value");
    inputs.push_back(name.empty() ? nullptr : &at->second);
  }
  SLM_ASSIGN_OR_RETURN(Arrays made, row.function(Call(n, opset, std::move(inputs))));
  for (size_t k = 0; k < n.outputs.size(); ++k) {
    if (n.outputs[k].empty()) continue;
    if (k >= made.size()) return Refuse(fmt::format("output {} of {}", k, NameOf(n)));
    kept += made[k].size();
    if (kept > kMaxKept) return Error(Code::kLimit, fmt::format("more than {} values in all", kMaxKept), "test with a smaller graph");
    values.insert_or_assign(n.outputs[k], std::move(made[k]));
  }
  return Ok();
}

Status SetInputs(const onnx::Graph& g, const std::vector<Array>& inputs, Values& values) {
  for (const onnx::Tensor& t : g.initializers) {
    SLM_ASSIGN_OR_RETURN(Array a, FromTensor(t));
    values.insert_or_assign(t.name, std::move(a));
  }
  if (!g.sparse_initializers.empty()) return Refuse("sparse initializers");
  if (inputs.size() > g.inputs.size())
    return Error(Code::kCorrupt, fmt::format("{} inputs, the graph has {}", inputs.size(), g.inputs.size()), "give the graph's inputs");
  for (size_t k = 0; k < g.inputs.size(); ++k) {
    if (k < inputs.size()) values.insert_or_assign(g.inputs[k].name, inputs[k]);
    else if (!values.contains(g.inputs[k].name))
      return Error(Code::kCorrupt, "input '" + g.inputs[k].name + "' has no value", "give all of the graph's inputs");
  }
  return Ok();
}

}  // namespace

Result<std::vector<Array>> RunGraph(const onnx::Model& model, const std::vector<Array>& inputs) {
  const onnx::Graph& g = model.graph;
  const auto place = [&](size_t k) { return fmt::format("node {} ({})", k, NameOf(g.nodes[k])); };
  std::vector<const Row*> rows;  // what cannot be run is refused before anything is computed
  for (size_t k = 0; k < g.nodes.size(); ++k) {
    const auto row = RowOf(model, g.nodes[k]);
    if (!row.ok()) return row.error().At(place(k));
    rows.push_back(row.value());
  }
  Values values;
  int64_t kept = 0;
  SLM_RETURN_IF_ERROR(SetInputs(g, inputs, values));
  for (size_t k = 0; k < g.nodes.size(); ++k)
    if (const Status s = RunNode(g.nodes[k], *rows[k], model.OpsetVersion(g.nodes[k].domain), values, kept); !s.ok())
      return s.error().At(place(k));
  std::vector<Array> outputs;
  for (const onnx::ValueInfo& v : g.outputs) {
    const auto at = values.find(v.name);
    if (at == values.end()) return Wrong("output '" + v.name + "' has no value");
    outputs.push_back(at->second);
  }
  return outputs;
}

std::vector<OperatorRow> Operators() {
  std::vector<OperatorRow> out;
  for (const Row& r : kRows) out.push_back({r.domain, r.name, r.first_opset});
  return out;
}

}  // namespace slm::reference
