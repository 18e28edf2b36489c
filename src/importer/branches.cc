// Which branch of an If a decoder takes. LongRoPE is written so: other tables of cosines and sines for sequences longer than a limit.
#include <fmt/format.h>

#include "importer/walk.h"
#include "onnx/inline.h"

namespace slm::importer {
namespace {

constexpr int kMostBranches = 64;  // of a file; each moves the nodes behind it

Error Refuse(const std::string& what) {
  return Error(Code::kUnsupported, what, "export the model without the If, or run it with ONNX Runtime");
}

class Condition {
 public:
  Condition(Walk& w, const std::string& name) : w_(w), name_(name) {}

  // Of every kind of call that ends with `total` tokens. Errors: kUnsupported when they differ.
  Result<bool> At(int64_t total) {
    SLM_ASSIGN_OR_RETURN(const bool whole, In({0, total}));
    for (const CallLengths& call : {CallLengths{total - 1, 1}, CallLengths{total / 2, total - total / 2}}) {
      SLM_ASSIGN_OR_RETURN(const bool other, In(call));
      if (other != whole) return Refuse("a branch that depends on how many tokens a call has, not on the length of the sequence alone");
    }
    return whole;
  }

 private:
  Result<bool> In(const CallLengths& call) {
    SLM_ASSIGN_OR_RETURN(const reference::Array a, w_.calls.Evaluate(name_, call, w_.values, w_.work));
    if (a.type != onnx::ElementType::kBool || a.size() != 1) return Refuse("a condition that is not one truth value");
    return a.i[0] != 0;
  }

  Walk& w_;
  const std::string name_;
};

Result<Choice> Search(Walk& w, const std::string& name) {
  Condition condition(w, name);
  Choice c;
  SLM_ASSIGN_OR_RETURN(c.yes, condition.At(1));
  const CallLengths& last = w.calls.probes().back();
  const int64_t longest = last.past + last.tokens;
  int64_t same = 1, other = 0;
  for (int64_t total = 2; other == 0 && same < longest; total = total < 8 ? total + 1 : total * 2) {
    total = std::min(total, longest);
    SLM_ASSIGN_OR_RETURN(const bool yes, condition.At(total));
    (yes == c.yes ? same : other) = total;
  }
  if (other == 0) return c;
  while (other - same > 1) {
    const int64_t middle = same + (other - same) / 2;
    SLM_ASSIGN_OR_RETURN(const bool yes, condition.At(middle));
    (yes == c.yes ? same : other) = middle;
  }
  c.most_total = same;
  return c;
}

Result<Choice> ChoiceOf(Walk& w, const std::string& name) {
  if (const auto known = w.choices.find(name); known != w.choices.end()) return known->second;
  SLM_ASSIGN_OR_RETURN(const Choice found, Search(w, name));
  w.choices[name] = found;
  return found;
}

}  // namespace

Status ResolveIf(Walk& w, size_t at) {
  std::vector<onnx::Node>& nodes = w.onnx.graph.nodes;
  const onnx::Node& n = nodes[at];
  if (++w.n_branches > kMostBranches)
    return Error(Code::kLimit, fmt::format("more than {} nodes If", kMostBranches), "export the model without branches");
  const auto input = n.inputs.size() == 1 ? w.values.find(n.inputs[0]) : w.values.end();
  if (input == w.values.end()) return Error(Code::kCorrupt, "an If without a condition", "export or fetch the file again");
  Choice choice;
  if (input->second->kind == Kind::kFixed) {
    const auto number = NumberOf(*input->second);
    if (!number) return Refuse("a condition that is not one truth value");
    choice.yes = *number != 0;
  } else if (input->second->kind == Kind::kCall) {
    SLM_ASSIGN_OR_RETURN(choice, ChoiceOf(w, n.inputs[0]));
  } else {
    return Refuse("a condition that depends on the tokens");
  }
  if (choice.most_total > 0) w.most_total = w.most_total == 0 ? choice.most_total : std::min(w.most_total, choice.most_total);
  const auto place = nodes.begin() + static_cast<std::ptrdiff_t>(at);
  SLM_ASSIGN_OR_RETURN(std::vector<onnx::Node> taken,
                       onnx::NodesOfBranch(std::move(*place), choice.yes ? onnx::Branch::kThen : onnx::Branch::kElse));
  nodes.insert(nodes.erase(place), std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end()));
  w.calls.IndexNodes();
  return Ok();
}

}  // namespace slm::importer
