// See check.h. ONNX's IR.md asks for static single assignment, a topological order of the nodes and functions without recursion;
// all three are what keeps a walk over the graph finite.
#include "onnx/check.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "model/quoted.h"

namespace slm::onnx {
namespace {

using model::Quoted;

constexpr const char* kHint = "the graph does not follow ONNX's rules for names: export the model again";

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

struct Scope {
  const Scope* outer = nullptr;
  std::unordered_set<std::string_view> names;
  bool Knows(std::string_view name) const {
    for (const Scope* s = this; s; s = s->outer)
      if (s->names.contains(name)) return true;
    return false;
  }
};

Status CheckGraph(const Graph& g, const Scope* outer);

Error NotMade(std::string_view input, const std::vector<Node>& nodes) {
  for (const Node& n : nodes)
    for (const std::string& o : n.outputs)
      if (o == input)
        return Corrupt("input " + Quoted(input) + " is made by a later node, " + Quoted(n.name) + ": nodes out of order or in a cycle");
  return Corrupt("input " + Quoted(input) + " is made nowhere");
}

Status CheckNode(const Node& n, const std::vector<Node>& nodes, Scope& scope) {
  for (const std::string& input : n.inputs)
    if (!input.empty() && !scope.Knows(input)) return NotMade(input, nodes);
  for (const Attribute& a : n.attributes)
    for (const Graph& g : a.graphs) SLM_RETURN_IF_ERROR(CheckGraph(g, &scope));
  for (const std::string& output : n.outputs)
    if (!output.empty() && !scope.names.insert(output).second) return Corrupt("output " + Quoted(output) + " has that name already");
  return Ok();
}

Status CheckNodes(const std::vector<Node>& nodes, Scope& scope) {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (const Status s = CheckNode(nodes[i], nodes, scope); !s.ok())
      return s.error().At(fmt::format("node {} {} ({})", i, Quoted(nodes[i].name), Quoted(nodes[i].op_type)));
  return Ok();
}

Status AddInitializers(const Graph& g, Scope& scope) {
  std::unordered_set<std::string_view> seen;
  const auto add = [&](const std::string& name) -> Status {
    if (name.empty()) return Corrupt("an initializer without a name");
    if (!seen.insert(name).second) return Corrupt("two initializers are called " + Quoted(name));
    scope.names.insert(name);  // may be the default of an input of the same name
    return Ok();
  };
  for (const Tensor& t : g.initializers) SLM_RETURN_IF_ERROR(add(t.name));
  for (const SparseTensor& s : g.sparse_initializers) SLM_RETURN_IF_ERROR(add(s.values.name));
  return Ok();
}

Status CheckGraph(const Graph& g, const Scope* outer) {
  Scope scope{outer, {}};
  for (const ValueInfo& v : g.inputs)
    if (v.name.empty() || !scope.names.insert(v.name).second) return Corrupt("two inputs are called " + Quoted(v.name));
  SLM_RETURN_IF_ERROR(AddInitializers(g, scope));
  SLM_RETURN_IF_ERROR(CheckNodes(g.nodes, scope));
  std::unordered_set<std::string_view> outputs;
  for (const ValueInfo& v : g.outputs) {
    if (!scope.Knows(v.name)) return Corrupt("output " + Quoted(v.name) + " of the graph is made nowhere");
    if (!outputs.insert(v.name).second) return Corrupt("output " + Quoted(v.name) + " of the graph stands twice");
  }
  return Ok();
}

Status CheckFunction(const Function& f) {
  Scope scope;
  for (const std::string& input : f.inputs)
    if (!scope.names.insert(input).second) return Corrupt("two inputs are called " + Quoted(input));
  SLM_RETURN_IF_ERROR(CheckNodes(f.nodes, scope));
  for (const std::string& output : f.outputs)
    if (!scope.names.contains(output)) return Corrupt("output " + Quoted(output) + " is made nowhere");
  return Ok();
}

using Key = std::tuple<std::string_view, std::string_view, std::string_view>;
using Index = std::map<Key, size_t>;

void Calls(const std::vector<Node>& nodes, const Index& functions, std::vector<size_t>& out) {
  for (const Node& n : nodes) {
    if (const auto at = functions.find({n.domain, n.op_type, n.overload}); at != functions.end()) out.push_back(at->second);
    for (const Attribute& a : n.attributes)
      for (const Graph& g : a.graphs) Calls(g.nodes, functions, out);
  }
}

// Takes away functions that nobody calls any more, until none is left; what stays calls itself.
Status CheckRecursion(const std::vector<Function>& functions) {
  Index index;
  for (size_t i = 0; i < functions.size(); ++i) {
    const Function& f = functions[i];
    if (!index.emplace(Key{f.domain, f.name, f.overload}, i).second) return Corrupt("two functions are called " + Quoted(f.name));
  }
  std::vector<std::vector<size_t>> calls(functions.size());
  std::vector<size_t> callers(functions.size()), free;
  for (size_t i = 0; i < functions.size(); ++i) {
    Calls(functions[i].nodes, index, calls[i]);
    for (const size_t called : calls[i]) ++callers[called];
  }
  for (size_t i = 0; i < functions.size(); ++i)
    if (callers[i] == 0) free.push_back(i);
  for (size_t done = 0; done < free.size(); ++done)
    for (const size_t called : calls[free[done]])
      if (--callers[called] == 0) free.push_back(called);
  for (size_t i = 0; i < functions.size(); ++i)
    if (callers[i] > 0) return Corrupt("function " + Quoted(functions[i].name) + " calls itself, or functions that call themselves");
  return Ok();
}

}  // namespace

Status CheckNames(const Model& model) {
  for (const Function& f : model.functions)
    if (const Status s = CheckFunction(f); !s.ok()) return s.error().At("function " + Quoted(f.name));
  SLM_RETURN_IF_ERROR(CheckRecursion(model.functions));
  return CheckGraph(model.graph, nullptr);
}

}  // namespace slm::onnx
