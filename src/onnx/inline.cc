// See inline.h.
#include "onnx/inline.h"

#include <fmt/format.h>

namespace slm::onnx {
namespace {

const char* NameOf(Branch which) { return which == Branch::kThen ? "then_branch" : "else_branch"; }

}  // namespace

FunctionIndex::FunctionIndex(const std::vector<Function>& functions) {
  for (const Function& f : functions) functions_.emplace(std::tie(f.domain, f.name, f.overload), &f);
}

const Function* FunctionIndex::Of(const Node& node) const {
  const auto at = functions_.find(std::tie(node.domain, node.op_type, node.overload));
  return at == functions_.end() ? nullptr : at->second;
}

const Attribute* FunctionCall::ValueOf(const Attribute& a) const {
  if (a.ref.empty()) return &a;
  if (node)
    if (const Attribute* given = node->Find(a.ref)) return given;
  if (function)
    for (const Attribute& standard : function->attributes)
      if (standard.name == a.ref) return &standard;
  return nullptr;
}

const Graph* BranchOf(const Node& node, Branch which) {
  const Attribute* a = node.Find(NameOf(which));
  return a && a->graphs.size() == 1 ? &a->graphs[0] : nullptr;
}

Result<std::vector<Node>> NodesOfBranch(Node node, Branch which) {
  for (Attribute& a : node.attributes) {
    if (a.name != NameOf(which) || a.graphs.size() != 1 || a.graphs[0].outputs.size() != node.outputs.size()) continue;
    std::vector<Node> nodes = std::move(a.graphs[0].nodes);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (!node.outputs[i].empty()) nodes.push_back(IdentityNode(node.outputs[i], a.graphs[0].outputs[i].name, node.outputs[i]));
    return nodes;
  }
  return Error(Code::kCorrupt, fmt::format("{} is missing, or of other outputs than its node", NameOf(which)),
               "export or fetch the file again");
}

Node IdentityNode(const std::string& name, const std::string& from, const std::string& to) {
  Node n;
  n.op_type = "Identity", n.name = name;
  n.inputs = {from}, n.outputs = {to};
  return n;
}

}  // namespace slm::onnx
