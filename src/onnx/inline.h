// Nodes in another place: those of a function where it is called, those of a branch where its If stood. ONNX's docs/IR.md says what they
// mean there. A door of `onnx`: no state, so any thread may call it.
#pragma once
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "onnx/onnx.h"

namespace slm::onnx {

// A model's functions by what nodes call; points into `functions`.
class FunctionIndex {
 public:
  explicit FunctionIndex(const std::vector<Function>& functions);
  const Function* Of(const Node& node) const;  // nullptr: the node is an operator

 private:
  std::map<std::tuple<std::string_view, std::string_view, std::string_view>, const Function*> functions_;
};

// Whose nodes are looked at: those of `function`, called by `node`, or, both null, of no function.
struct FunctionCall {
  const Function* function = nullptr;
  const Node* node = nullptr;  // with values: what it repeats of a call around it is resolved

  // What holds the value of `a`, an attribute of a node of the function: itself, the call's, or the function's default. nullptr: left out
  // by the call, so left out here.
  const Attribute* ValueOf(const Attribute& a) const;
};

enum class Branch : uint8_t { kThen, kElse };
// The graph of a branch of an If; nullptr: it is missing.
const Graph* BranchOf(const Node& node, Branch which);
// What stands for an If that always takes one branch: the branch's nodes under their names, which nothing else may have, then an Identity
// for each output. The branch's constants are left to the caller. Errors: kCorrupt (the branch is missing, or has another number of outputs
// than `node`).
Result<std::vector<Node>> NodesOfBranch(Node node, Branch which);

// A node that gives a value another name.
Node IdentityNode(const std::string& name, const std::string& from, const std::string& to);

}  // namespace slm::onnx
