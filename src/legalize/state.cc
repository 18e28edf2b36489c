// See state.h.
#include "legalize/state.h"

#include <algorithm>

namespace slm::legalize {
namespace {

void CollectUsed(const onnx::Graph& graph, std::set<std::string, std::less<>>& used) {
  for (const onnx::Node& n : graph.nodes) {
    used.insert(n.inputs.begin(), n.inputs.end());
    for (const onnx::Attribute& a : n.attributes)
      for (const onnx::Graph& body : a.graphs) CollectUsed(body, used);
  }
  for (const onnx::ValueInfo& v : graph.outputs) used.insert(v.name);
}

bool IsUnused(const onnx::Node& n, const std::set<std::string, std::less<>>& used) {
  return std::none_of(n.outputs.begin(), n.outputs.end(), [&](const std::string& out) { return !out.empty() && used.contains(out); });
}

// The oldest version of the file format that may hold an operator set, after ONNX's docs/Versioning.md.
int64_t LeastIrVersion(int64_t opset) {
  struct Row {
    int64_t opset, ir;
  };
  for (const Row& r : {Row{25, 13}, Row{24, 12}, Row{23, 11}, Row{21, 10}, Row{19, 9}, Row{15, 8}})
    if (opset >= r.opset) return r.ir;
  return 7;
}

bool AnyNode(const onnx::Graph& graph, bool (*matches)(const onnx::Node&)) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const onnx::Node& n) {
    if (matches(n)) return true;
    for (const onnx::Attribute& a : n.attributes)
      for (const onnx::Graph& body : a.graphs)
        if (AnyNode(body, matches)) return true;
    return false;
  });
}

}  // namespace

onnx::Model Borrow(const onnx::Model& m) {
  onnx::Model out;
  out.path = m.path, out.file_bytes = m.file_bytes;
  out.ir_version = m.ir_version, out.model_version = m.model_version;
  out.producer_name = m.producer_name, out.producer_version = m.producer_version, out.domain = m.domain, out.doc = m.doc;
  out.opsets = m.opsets, out.graph = m.graph, out.functions = m.functions;
  out.metadata = m.metadata, out.external_files = m.external_files;
  return out;
}

int View::FlatNode(const onnx::Node& node) const {
  const auto at = of_output.find(Key(node));
  return at == of_output.end() ? -1 : at->second;
}

Result<View> Look(const State& state, const targets::Target& target) {
  SLM_ASSIGN_OR_RETURN(targets::Flat flat, targets::Flatten(state.model, {}));
  View v{std::move(flat), {}, {}};
  v.placed = targets::Place(v.flat, target.description());
  // Only nodes of the main graph itself: calls of functions stand here by their bodies.
  std::map<std::string, const onnx::Node*, std::less<>> own;
  for (const onnx::Node& n : state.model.graph.nodes) own[Key(n)] = &n;
  for (size_t i = 0; i < v.flat.nodes.size(); ++i) {
    const targets::FlatNode& n = v.flat.nodes[i];
    const auto at = n.owner < 0 ? own.find(Key(n.node)) : own.end();
    if (at != own.end() && at->second->op_type == n.node.op_type && at->second->domain == n.node.domain &&
        at->second->inputs == n.node.inputs)
      v.of_output[at->first] = static_cast<int>(i);
  }
  return v;
}

std::string Key(const onnx::Node& node) {
  for (const std::string& out : node.outputs)
    if (!out.empty()) return out;
  return "";
}

int FindNode(const onnx::Graph& graph, const std::string& key) {
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (Key(graph.nodes[i]) == key) return static_cast<int>(i);
  return -1;
}

std::string OpName(const onnx::Node& node) { return node.domain.empty() ? node.op_type : node.domain + "." + node.op_type; }

std::set<std::string, std::less<>> UsedNames(const onnx::Graph& graph) {
  std::set<std::string, std::less<>> used;
  CollectUsed(graph, used);
  return used;
}

Unused UnusedOf(const onnx::Graph& graph) {
  const auto used = UsedNames(graph);
  Unused out;
  for (const onnx::Node& n : graph.nodes)
    if (IsUnused(n, used)) out.nodes.insert(Key(n));
  for (const onnx::Tensor& t : graph.initializers)
    if (!used.contains(t.name)) out.tensors.insert(t.name);
  // An input with a first value stays an input that may be left out.
  for (const onnx::ValueInfo& v : graph.inputs) out.tensors.insert(v.name);
  return out;
}

void Prune(onnx::Graph& graph, const Unused& from_the_beginning) {
  // From the back: a node's readers are gone before it is looked at.
  auto used = UsedNames(graph);
  for (;;) {
    const size_t n = graph.nodes.size();
    std::erase_if(graph.nodes,
                  [&](const onnx::Node& node) { return IsUnused(node, used) && !from_the_beginning.nodes.contains(Key(node)); });
    if (graph.nodes.size() == n) break;
    used = UsedNames(graph);
  }
  std::erase_if(graph.initializers,
                [&](const onnx::Tensor& t) { return !used.contains(t.name) && !from_the_beginning.tensors.contains(t.name); });
  std::set<std::string, std::less<>> made;
  for (const onnx::Node& n : graph.nodes) made.insert(n.outputs.begin(), n.outputs.end());
  std::erase_if(graph.value_infos, [&](const onnx::ValueInfo& v) { return !made.contains(v.name); });
}

State Apply(const State& state, const Piece& piece) {
  State next = state.Copy();
  onnx::Graph& g = next.model.graph;
  std::vector<onnx::Node> nodes;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (i == piece.takes.back()) nodes.insert(nodes.end(), piece.nodes.begin(), piece.nodes.end());
    if (std::find(piece.takes.begin(), piece.takes.end(), i) == piece.takes.end()) nodes.push_back(std::move(g.nodes[i]));
  }
  g.nodes = std::move(nodes);
  for (const OwnedTensor& t : piece.tensors) {
    g.initializers.push_back(t.tensor);
    next.owned.push_back(t.bytes);
  }
  for (onnx::Opset& o : next.model.opsets)
    if (o.domain.empty() && o.version < piece.least_opset) {
      o.version = piece.least_opset;
      next.model.ir_version = std::max(next.model.ir_version, LeastIrVersion(o.version));
    }
  return next;
}

bool CanRaise(const onnx::Model& model, int64_t opset) {
  const int64_t now = onnx::OpsetVersion(model.opsets, "");
  if (now >= opset) return true;
  return now >= 18 && !AnyNode(model.graph, [](const onnx::Node& n) {
           return n.domain.empty() && (n.op_type == "GridSample" || n.op_type == "DFT" || n.op_type == "GroupNormalization");
         });
}

void FixDims(onnx::Graph& graph, const std::map<std::string, int64_t>& dims) {
  for (auto* list : {&graph.inputs, &graph.outputs, &graph.value_infos})
    for (onnx::ValueInfo& v : *list)
      for (onnx::Dim& d : v.type.shape)
        if (const auto at = dims.find(d.symbol); d.value < 0 && at != dims.end()) d = {at->second, ""};
  for (onnx::Node& n : graph.nodes)
    for (onnx::Attribute& a : n.attributes)
      for (onnx::Graph& body : a.graphs) FixDims(body, dims);
}

}  // namespace slm::legalize
