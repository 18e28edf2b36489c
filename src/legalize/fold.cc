// Fold: what is the same at every run becomes a constant. What is known comes from targets::Flatten, which runs small nodes by the
// reference executor and bounds their size.
#include <algorithm>
#include <set>

#include "legalize/state.h"

namespace slm::legalize {
namespace {

constexpr int kMostPasses = 100;  // a branch that is taken may decide the next one

// Name of the branch that an If takes at every run; nullptr: not known, or it stays.
const char* Branch(const onnx::Node& n, const targets::Flat& flat) {
  if (n.op_type != "If" || !n.domain.empty() || n.inputs.size() != 1) return nullptr;
  const targets::Value* v = flat.Find(n.inputs[0]);
  if (!v || !v->fixed) return nullptr;
  int64_t condition = -1;
  if (v->data && v->data->i.size() == 1) condition = v->data->i[0];
  else if (v->tensor && v->tensor->n_values() == 1 && v->tensor->data.size() == 1) condition = std::to_integer<int64_t>(v->tensor->data[0]);
  if (condition < 0) return nullptr;
  const char* name = condition != 0 ? "then_branch" : "else_branch";
  const onnx::Attribute* a = n.Find(name);
  if (!a || a->graphs.size() != 1) return nullptr;
  const onnx::Graph& body = a->graphs[0];
  // A body inside the body sees its names, which change here; such an If stays.
  const bool nested = std::any_of(body.nodes.begin(), body.nodes.end(), [](const onnx::Node& inner) {
    return std::any_of(inner.attributes.begin(), inner.attributes.end(), [](const onnx::Attribute& b) { return !b.graphs.empty(); });
  });
  return nested || !body.sparse_initializers.empty() || body.outputs.size() != n.outputs.size() ? nullptr : name;
}

// The branch's nodes in the outer graph, under names of their own.
void TakeBranch(State& state, size_t at, const char* branch, const targets::Flat& flat, std::set<std::string>* prefixes) {
  const onnx::Node n = state.model.graph.nodes[at];
  const onnx::Graph& body = n.Find(branch)->graphs[0];
  std::string prefix = Key(n) + "/";
  const auto taken = [&] {
    const auto next = flat.values.lower_bound(prefix);
    return prefixes->contains(prefix) || (next != flat.values.end() && next->first.starts_with(prefix));
  };
  while (taken()) prefix += "/";
  prefixes->insert(prefix);
  std::map<std::string, std::string> names;
  for (const onnx::Tensor& t : body.initializers) names[t.name] = prefix + t.name;
  for (const onnx::Node& inner : body.nodes)
    for (const std::string& out : inner.outputs)
      if (!out.empty()) names[out] = prefix + out;
  const auto outer = [&](const std::string& name) {
    const auto known = names.find(name);
    return known == names.end() ? name : known->second;
  };
  std::vector<onnx::Node> nodes;
  for (const onnx::Node& inner : body.nodes) {
    nodes.push_back(inner);
    for (auto* list : {&nodes.back().inputs, &nodes.back().outputs})
      for (std::string& name : *list) name = outer(name);
    if (!nodes.back().name.empty()) nodes.back().name = prefix + nodes.back().name;
  }
  for (size_t k = 0; k < n.outputs.size(); ++k) {
    if (n.outputs[k].empty()) continue;
    onnx::Node same;
    same.op_type = "Identity";
    same.name = n.outputs[k];
    same.inputs = {outer(body.outputs[k].name)};
    same.outputs = {n.outputs[k]};
    nodes.push_back(std::move(same));
  }
  onnx::Graph& g = state.model.graph;
  for (onnx::Tensor t : body.initializers) {
    t.name = prefix + t.name;
    g.initializers.push_back(std::move(t));
  }
  g.nodes.erase(g.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  g.nodes.insert(g.nodes.begin() + static_cast<std::ptrdiff_t>(at), nodes.begin(), nodes.end());
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
    const auto& nodes = state.model.graph.nodes;
    std::vector<std::pair<size_t, const char*>> decided;
    for (size_t at = nodes.size(); at-- > 0;)
      if (const char* branch = Branch(nodes[at], flat)) decided.emplace_back(at, branch);
    if (decided.empty()) break;
    std::set<std::string> prefixes;
    for (const auto& [at, branch] : decided) TakeBranch(state, at, branch, flat, &prefixes);  // from the last, so that places stay
    gone += static_cast<int64_t>(decided.size());
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
