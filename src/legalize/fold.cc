// Fold: what is the same at every run becomes a constant. What is known comes from targets::Flatten, which runs small nodes by the
// reference executor and bounds their size.
#include <algorithm>
#include <iterator>
#include <set>

#include "legalize/state.h"
#include "onnx/inline.h"

namespace slm::legalize {
namespace {

constexpr int kMostPasses = 100;  // a branch that is taken may decide the next one

// The branch that an If takes at every run; nullopt: not known, or it stays.
std::optional<onnx::Branch> Decided(const onnx::Node& n, const targets::Flat& flat) {
  if (n.op_type != "If" || !n.domain.empty() || n.inputs.size() != 1) return std::nullopt;
  const auto condition = FixedNumber(flat, n.inputs[0]);
  if (!condition) return std::nullopt;
  const onnx::Branch which = *condition != 0 ? onnx::Branch::kThen : onnx::Branch::kElse;
  const onnx::Graph* body = onnx::BranchOf(n, which);
  if (!body || !body->sparse_initializers.empty() || body->outputs.size() != n.outputs.size()) return std::nullopt;
  // A body inside the body sees its names, which change here; such an If stays.
  const bool nested = std::any_of(body->nodes.begin(), body->nodes.end(), [](const onnx::Node& inner) {
    return std::any_of(inner.attributes.begin(), inner.attributes.end(), [](const onnx::Attribute& a) { return !a.graphs.empty(); });
  });
  return nested ? std::nullopt : std::optional(which);
}

// The names that a body makes begin with `prefix`, so that it can stand in the outer graph.
void Rename(onnx::Graph& body, const std::string& prefix) {
  std::set<std::string> own;
  for (const onnx::Tensor& t : body.initializers) own.insert(t.name);
  for (const onnx::Node& n : body.nodes) own.insert(n.outputs.begin(), n.outputs.end());
  const auto rename = [&](std::string& name) {
    if (!name.empty() && own.contains(name)) name = prefix + name;
  };
  for (onnx::Tensor& t : body.initializers) rename(t.name);
  for (onnx::Node& n : body.nodes) {
    for (auto* names : {&n.inputs, &n.outputs}) std::for_each(names->begin(), names->end(), rename);
    if (!n.name.empty()) n.name = prefix + n.name;
  }
  for (onnx::ValueInfo& v : body.outputs) rename(v.name);
}

// Takes the branches that are decided; how many.
Result<int64_t> TakeBranches(onnx::Graph& g, const targets::Flat& flat) {
  std::set<std::string> prefixes;
  const auto is_taken = [&](const std::string& prefix) {
    const auto next = flat.values.lower_bound(prefix);
    return prefixes.contains(prefix) || (next != flat.values.end() && next->first.starts_with(prefix));
  };
  int64_t gone = 0;
  std::vector<onnx::Node> kept;
  std::vector<onnx::Tensor> constants;  // apart: `flat` points into the graph's
  for (onnx::Node& n : g.nodes) {
    const auto which = Decided(n, flat);
    if (!which) {
      kept.push_back(std::move(n));
      continue;
    }
    ++gone;
    std::string prefix = Key(n) + "/";
    while (is_taken(prefix)) prefix += "/";
    prefixes.insert(prefix);
    for (onnx::Attribute& a : n.attributes)
      for (onnx::Graph& body : a.graphs) Rename(body, prefix);
    const auto& own = onnx::BranchOf(n, *which)->initializers;
    constants.insert(constants.end(), own.begin(), own.end());
    SLM_ASSIGN_OR_RETURN(std::vector<onnx::Node> nodes, onnx::NodesOfBranch(std::move(n), *which));
    kept.insert(kept.end(), std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
  }
  g.nodes = std::move(kept);
  g.initializers.insert(g.initializers.end(), constants.begin(), constants.end());
  return gone;
}

// The outputs of a node as constants; none where one is not known.
std::vector<OwnedTensor> Constants(const onnx::Node& n, const targets::Flat& flat) {
  std::vector<OwnedTensor> out;
  for (const std::string& name : n.outputs) {
    const targets::Value* v = flat.Find(name);
    if (name.empty()) continue;
    if (!v || !v->fixed || !v->data || v->graph_output || v->tensor) return {};
    auto tensor = Encode(name, *v->data);
    if (!tensor) return {};
    out.push_back(std::move(*tensor));
  }
  return out;
}

}  // namespace

Result<int64_t> Fold(State& state) {
  int64_t gone = 0;
  for (int pass = 0; pass < kMostPasses; ++pass) {
    SLM_ASSIGN_OR_RETURN(const targets::Flat flat, targets::Flatten(state.model, {}));
    SLM_ASSIGN_OR_RETURN(const int64_t taken, TakeBranches(state.model.graph, flat));
    if (taken == 0) break;
    gone += taken;
  }
  SLM_ASSIGN_OR_RETURN(const targets::Flat flat, targets::Flatten(state.model, {}));
  onnx::Graph& g = state.model.graph;
  std::vector<onnx::Node> kept;
  std::vector<OwnedTensor> made;
  for (onnx::Node& n : g.nodes) {
    auto constants = n.op_type == "Constant" ? std::vector<OwnedTensor>() : Constants(n, flat);
    if (constants.empty()) {
      kept.push_back(std::move(n));
      continue;
    }
    ++gone;
    for (OwnedTensor& t : constants) made.push_back(std::move(t));
  }
  g.nodes = std::move(kept);
  for (OwnedTensor& t : made) {
    g.initializers.push_back(std::move(t.tensor));
    state.owned.push_back(std::move(t.bytes));
  }
  return gone;
}

}  // namespace slm::legalize
