// RunGraph: the nodes one after the other, each value kept until the end of its graph. See reference.h.
//
// `If` and calls of the model's own functions are walked here, because they run nodes; everything else is a row of operators.inc.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "onnx/inline.h"
#include "reference/call.h"

namespace slm::reference {
namespace {

constexpr int64_t kMaxKept = int64_t{1} << 26;   // values of all arrays of a run: 512 MiB
constexpr int64_t kMaxNodes = int64_t{1} << 20;  // run in all: functions that call functions grow like powers

constexpr struct Row {
  const char* domain;
  const char* name;
  int first_opset;
  Operator function;
} kRows[] = {
#define SLM_OP(domain, name, first_opset, function) {domain, name, first_opset, function},
#include "reference/operators.inc"
#undef SLM_OP
};

using Values = std::map<std::string, Array, std::less<>>;

struct Scope {
  const Scope* outer = nullptr;
  Values values;
  const Array* Find(const std::string& name) const {
    for (const Scope* s = this; s; s = s->outer)
      if (const auto at = s->values.find(name); at != s->values.end()) return &at->second;
    return nullptr;
  }
};

// Whose nodes are run: the main graph's, or those of a function.
struct Frame {
  std::span<const onnx::Opset> opsets;
  onnx::FunctionCall call;
};

std::string NameOf(const onnx::Node& n) { return n.domain.empty() ? n.op_type : n.domain + "." + n.op_type; }

bool IsIf(const onnx::Node& n) { return n.domain.empty() && n.op_type == "If"; }

const Row* FindRow(const onnx::Node& n) {
  for (const Row& r : kRows)
    if (n.domain == r.domain && n.op_type == r.name) return &r;
  return nullptr;
}

// A node with the values of attributes that it takes over from the call of its function. One that takes none over is not copied: the
// graphs inside of it would be copied again at every level.
class Resolved {
 public:
  Resolved(const onnx::Node& n, const onnx::FunctionCall& call) : node_(n) {
    if (std::all_of(n.attributes.begin(), n.attributes.end(), [](const onnx::Attribute& a) { return a.ref.empty(); })) return;
    own_ = n;
    own_->attributes.clear();
    for (const onnx::Attribute& a : n.attributes) {
      const onnx::Attribute* value = call.ValueOf(a);
      if (!value) continue;
      own_->attributes.push_back(*value);
      own_->attributes.back().name = a.name;
    }
  }
  const onnx::Node& node() const { return own_ ? *own_ : node_; }

 private:
  const onnx::Node& node_;
  std::optional<onnx::Node> own_;
};

Result<Arrays> Outputs(const std::vector<std::string>& names, const Scope& scope) {
  Arrays out;
  for (const std::string& name : names) {
    const Array* a = scope.Find(name);
    if (!a) return Wrong("output '" + name + "' has no value");
    out.push_back(*a);
  }
  return out;
}

std::vector<std::string> OutputNames(const onnx::Graph& g) {
  std::vector<std::string> names;
  for (const onnx::ValueInfo& v : g.outputs) names.push_back(v.name);
  return names;
}

// Can this build run the node, with the row of its operator or, without one, as a node that runs others?
Status CheckOpset(const onnx::Node& n, const Row* row, std::span<const onnx::Opset> opsets) {
  if (!row && !IsIf(n)) return Refuse("operator " + NameOf(n));
  const int64_t opset = onnx::OpsetVersion(opsets, n.domain), first = row ? row->first_opset : 1;
  if (opset == 0) return Wrong("operator set '" + n.domain + "' is not imported");
  if (opset < first || (n.domain.empty() && opset > onnx::kNewestOpset))
    return Refuse(fmt::format("{} of operator set {}; known from {} to {}", NameOf(n), opset, first, onnx::kNewestOpset));
  return Ok();
}

// Counts the values that a run keeps.
Status CountKept(int64_t more, int64_t& kept) {
  kept += more;
  if (kept > kMaxKept) return Error(Code::kLimit, fmt::format("more than {} values in all", kMaxKept), "test with a smaller graph");
  return Ok();
}

Error NoSuchOutput(const onnx::Node& n, size_t k) { return Refuse(fmt::format("output {} of {}", k, NameOf(n))); }

class Runner {
 public:
  explicit Runner(const onnx::Model& model) : functions_(model.functions) {}

  // Refuses what cannot be run before anything is computed.
  Status Check(const std::vector<onnx::Node>& nodes, std::span<const onnx::Opset> opsets) {
    for (size_t k = 0; k < nodes.size(); ++k)
      if (const Status s = CheckNode(nodes[k], opsets); !s.ok()) return s.error().At(Place(nodes, k));
    return Ok();
  }

  Status AddInitializers(const onnx::Graph& g, Scope& scope) {
    if (!g.sparse_initializers.empty()) return Refuse("sparse initializers");
    for (const onnx::Tensor& t : g.initializers) {
      SLM_ASSIGN_OR_RETURN(Array a, FromTensor(t));
      SLM_RETURN_IF_ERROR(Keep(t.name, std::move(a), scope));
    }
    return Ok();
  }

  Status Nodes(const std::vector<onnx::Node>& nodes, const Frame& frame, Scope& scope) {
    for (size_t k = 0; k < nodes.size(); ++k)
      if (const Status s = RunNode(nodes[k], frame, scope); !s.ok()) return s.error().At(Place(nodes, k));
    return Ok();
  }

 private:
  static std::string Place(const std::vector<onnx::Node>& nodes, size_t k) { return fmt::format("node {} ({})", k, NameOf(nodes[k])); }

  Status CheckNode(const onnx::Node& n, std::span<const onnx::Opset> opsets) {
    for (const onnx::Attribute& a : n.attributes) {
      if (!a.graphs.empty() && !IsIf(n)) return Refuse(NameOf(n) + " with a graph inside");
      for (const onnx::Graph& g : a.graphs) SLM_RETURN_IF_ERROR(Check(g.nodes, opsets));
    }
    if (const onnx::Function* f = functions_.Of(n)) {
      if (!checked_.insert(f).second) return Ok();
      const Level level(&depth_);
      return level.fits() ? Check(f->nodes, f->opsets) : Status(TooDeep());
    }
    return CheckOpset(n, FindRow(n), opsets);
  }

  Status Keep(const std::string& name, Array a, Scope& scope) {
    SLM_RETURN_IF_ERROR(CountKept(a.size(), kept_));
    scope.values.insert_or_assign(name, std::move(a));
    return Ok();
  }

  Status RunNode(const onnx::Node& written, const Frame& frame, Scope& scope) {
    if (++n_run_ > kMaxNodes) return Error(Code::kLimit, fmt::format("more than {} nodes in all", kMaxNodes), "test with a smaller graph");
    const Resolved resolved(written, frame.call);
    const onnx::Node& n = resolved.node();
    std::vector<const Array*> inputs;
    for (const std::string& name : n.inputs) {
      inputs.push_back(name.empty() ? nullptr : scope.Find(name));
      if (!name.empty() && !inputs.back()) return Wrong("input '" + name + "' has no value");
    }
    const Call call(n, onnx::OpsetVersion(frame.opsets, n.domain), std::move(inputs));
    const onnx::Function* function = functions_.Of(n);
    auto made = function ? CallFunction(*function, call) : IsIf(n) ? RunBranch(call, frame, scope) : FindRow(n)->function(call);
    if (!made.ok()) return made.error();
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      if (n.outputs[k].empty()) continue;
      if (k >= made.value().size()) return NoSuchOutput(n, k);
      SLM_RETURN_IF_ERROR(Keep(n.outputs[k], std::move(made.value()[k]), scope));
    }
    return Ok();
  }

  Result<Arrays> CallFunction(const onnx::Function& f, const Call& call) {
    const Level level(&depth_);
    if (!level.fits()) return TooDeep();
    Scope scope;
    for (size_t k = 0; k < f.inputs.size(); ++k)
      if (const Array* a = call.Optional(k)) SLM_RETURN_IF_ERROR(Keep(f.inputs[k], *a, scope));
    SLM_RETURN_IF_ERROR(Nodes(f.nodes, {f.opsets, {&f, &call.node()}}, scope));
    return Outputs(f.outputs, scope);
  }

  Result<Arrays> RunBranch(const Call& call, const Frame& frame, const Scope& outer) {
    SLM_ASSIGN_OR_RETURN(const Array* condition, call.In(0, Accept::kBool));
    if (condition->size() != 1) return Wrong("the condition is not one value");
    const onnx::Graph* g = onnx::BranchOf(call.node(), condition->i[0] != 0 ? onnx::Branch::kThen : onnx::Branch::kElse);
    if (!g) return Wrong("a branch is missing");
    Scope scope{&outer, {}};
    SLM_RETURN_IF_ERROR(AddInitializers(*g, scope));
    SLM_RETURN_IF_ERROR(Nodes(g->nodes, frame, scope));
    return Outputs(OutputNames(*g), scope);
  }

  // Functions that call each other, one inside the other.
  class Level {
   public:
    explicit Level(int* depth) : depth_(depth) { ++*depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --*depth_; }
    bool fits() const { return *depth_ <= 100; }

   private:
    int* depth_;
  };
  static Error TooDeep() { return Error(Code::kLimit, "functions call each other more than 100 deep", "test with a smaller model"); }

  onnx::FunctionIndex functions_;
  int depth_ = 0;
  std::set<const onnx::Function*> checked_;
  int64_t kept_ = 0, n_run_ = 0;
};

Status SetInputs(const onnx::Graph& g, const std::vector<Array>& inputs, Scope& scope) {
  if (inputs.size() > g.inputs.size())
    return Error(Code::kCorrupt, fmt::format("{} inputs, the graph has {}", inputs.size(), g.inputs.size()), "give the graph's inputs");
  for (size_t k = 0; k < g.inputs.size(); ++k) {
    if (k < inputs.size()) scope.values.insert_or_assign(g.inputs[k].name, inputs[k]);
    else if (!scope.Find(g.inputs[k].name))
      return Error(Code::kCorrupt, "input '" + g.inputs[k].name + "' has no value", "give all of the graph's inputs");
  }
  return Ok();
}

}  // namespace

Result<std::vector<Array>> RunGraph(const onnx::Model& model, const std::vector<Array>& inputs) {
  const onnx::Graph& g = model.graph;
  Runner runner(model);
  SLM_RETURN_IF_ERROR(runner.Check(g.nodes, model.opsets));
  Scope scope;
  SLM_RETURN_IF_ERROR(runner.AddInitializers(g, scope));
  SLM_RETURN_IF_ERROR(SetInputs(g, inputs, scope));
  SLM_RETURN_IF_ERROR(runner.Nodes(g.nodes, {model.opsets, {}}, scope));
  return Outputs(OutputNames(g), scope);
}

Result<std::vector<Array>> RunNode(const onnx::Node& node, std::span<const onnx::Opset> opsets, std::span<const Array* const> inputs,
                                   int64_t* work) {
  for (const onnx::Attribute& a : node.attributes)
    if (!a.graphs.empty()) return Refuse(NameOf(node) + " with a graph inside");
  const Row* row = FindRow(node);
  if (!row) return Refuse("operator " + NameOf(node));
  SLM_RETURN_IF_ERROR(CheckOpset(node, row, opsets));
  for (size_t k = 0; k < node.inputs.size(); ++k)
    if (!node.inputs[k].empty() && (k >= inputs.size() || !inputs[k])) return Wrong("input '" + node.inputs[k] + "' has no value");
  const Resolved resolved(node, {});
  const Call call(resolved.node(), onnx::OpsetVersion(opsets, node.domain), {inputs.begin(), inputs.end()});
  SLM_ASSIGN_OR_RETURN(Arrays made, row->function(call));
  std::vector<Array> out(node.outputs.size());
  int64_t kept = 0;
  for (size_t k = 0; k < out.size(); ++k) {
    if (node.outputs[k].empty()) continue;
    if (k >= made.size()) return NoSuchOutput(node, k);
    SLM_RETURN_IF_ERROR(CountKept(made[k].size(), kept));
    out[k] = std::move(made[k]);
  }
  if (work) *work += call.steps() + kept;
  return out;
}

std::vector<OperatorRow> Operators() {
  std::vector<OperatorRow> out;
  for (const Row& r : kRows) out.push_back({r.domain, r.name, r.first_opset});
  return out;
}

}  // namespace slm::reference
