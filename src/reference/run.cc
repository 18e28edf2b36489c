// RunGraph: the nodes one after the other, each value kept until the end of its graph. See reference.h.
//
// `If`, `Loop`, `Scan` and calls of the model's own functions are walked here, because they run nodes; everything else is a row of
// operators.inc.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "onnx/inline.h"
#include "reference/call.h"
#include "reference/stack.h"

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

// The oldest operator set known of a node that runs the graphs inside it; 0: it is none of them.
int FirstOpsetWithBodies(const onnx::Node& n) {
  if (!n.domain.empty()) return 0;
  return n.op_type == "If" ? 1 : n.op_type == "Loop" ? 11 : n.op_type == "Scan" ? 9 : 0;
}

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
  const int first = row ? row->first_opset : FirstOpsetWithBodies(n);
  if (first == 0) return Refuse("operator " + NameOf(n));
  const int64_t opset = onnx::OpsetVersion(opsets, n.domain);
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
      if (!a.graphs.empty() && FirstOpsetWithBodies(n) == 0) return Refuse(NameOf(n) + " with a graph inside");
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
    SLM_RETURN_IF_ERROR(CountRun());
    const Resolved resolved(written, frame.call);
    const onnx::Node& n = resolved.node();
    std::vector<const Array*> inputs;
    for (const std::string& name : n.inputs) {
      inputs.push_back(name.empty() ? nullptr : scope.Find(name));
      if (!name.empty() && !inputs.back()) return Wrong("input '" + name + "' has no value");
    }
    const Call call(n, onnx::OpsetVersion(frame.opsets, n.domain), std::move(inputs));
    const onnx::Function* function = functions_.Of(n);
    const Row* row = FindRow(n);
    auto made = function ? CallFunction(*function, call) : row ? row->function(call) : RunBodies(call, frame, scope);
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

  Result<Arrays> RunBodies(const Call& call, const Frame& frame, const Scope& outer) {
    if (call.node().op_type == "If") return RunBranch(call, frame, outer);
    const onnx::Attribute* body = call.node().Find("body");
    if (!body || body->graphs.size() != 1) return Wrong("the body is missing");
    return call.node().op_type == "Loop" ? RunLoop(call, body->graphs[0], frame, outer) : RunScan(call, body->graphs[0], frame, outer);
  }

  // A body once, on values in the order of its inputs.
  Result<Arrays> RunBody(const onnx::Graph& g, Arrays inputs, const Frame& frame, const Scope& outer) {
    if (inputs.size() != g.inputs.size()) return Wrong("a body that takes other inputs than it gets");
    SLM_RETURN_IF_ERROR(CountRun());  // one without nodes, too
    Scope scope{&outer, {}};
    SLM_RETURN_IF_ERROR(AddInitializers(g, scope));
    for (size_t k = 0; k < inputs.size(); ++k) SLM_RETURN_IF_ERROR(Keep(g.inputs[k].name, std::move(inputs[k]), scope));
    SLM_RETURN_IF_ERROR(Nodes(g.nodes, frame, scope));
    return Outputs(OutputNames(g), scope);
  }

  // The most rounds, the condition, what is carried from round to round. The body takes the round, the condition and what is carried, and
  // gives the next condition, what is carried on, and a slice of each output that is stacked.
  Result<Arrays> RunLoop(const Call& call, const onnx::Graph& g, const Frame& frame, const Scope& outer) {
    int64_t most = std::numeric_limits<int64_t>::max();
    if (call.Optional(0)) {
      SLM_ASSIGN_OR_RETURN(const auto given, call.Ints(0));
      if (given.size() != 1) return Wrong("the number of rounds is not one value");
      most = given[0];
    }
    const auto goes_on = [](const Array& condition) -> Result<bool> {
      if (!IsBool(condition.type) || condition.size() != 1) return Wrong("the condition is not one BOOL");
      return condition.i[0] != 0;
    };
    bool goes = true;
    if (call.Optional(1)) {
      SLM_ASSIGN_OR_RETURN(goes, goes_on(*call.Optional(1)));
    }
    Arrays carried;
    for (size_t k = 2; k < call.n_inputs(); ++k) {
      SLM_ASSIGN_OR_RETURN(const Array* x, call.In(k));
      carried.push_back(*x);
    }
    if (g.outputs.size() < 1 + carried.size()) return Wrong("a body that gives less than it takes");
    std::vector<Arrays> slices(g.outputs.size() - 1 - carried.size());
    for (int64_t round = 0; round < most && goes; ++round) {
      Arrays inputs{Scalar(ElementType::kInt64, static_cast<double>(round)), Scalar(ElementType::kBool, 1)};
      for (Array& x : carried) inputs.push_back(std::move(x));
      SLM_ASSIGN_OR_RETURN(Arrays made, RunBody(g, std::move(inputs), frame, outer));
      SLM_ASSIGN_OR_RETURN(goes, goes_on(made[0]));
      for (size_t k = 0; k < carried.size(); ++k) carried[k] = std::move(made[1 + k]);
      for (size_t k = 0; k < slices.size(); ++k) slices[k].push_back(std::move(made[1 + carried.size() + k]));
    }
    const size_t n_carried = carried.size();
    for (size_t k = 0; k < slices.size(); ++k) {
      SLM_ASSIGN_OR_RETURN(Array stacked, slices[k].empty() ? StackOfNone(g.outputs[1 + n_carried + k]) : Stack(slices[k], 0));
      carried.push_back(std::move(stacked));
    }
    return carried;
  }

  // States, then sequences whose slices the body takes one after the other; it gives the next states and slices of the outputs.
  Result<Arrays> RunScan(const Call& call, const onnx::Graph& g, const Frame& frame, const Scope& outer) {
    const int64_t n_sequences = call.Int("num_scan_inputs", 0), n_inputs = static_cast<int64_t>(call.n_inputs());
    if (n_sequences < 1 || n_sequences > n_inputs) return Wrong("num_scan_inputs");
    const size_t n_states = static_cast<size_t>(n_inputs - n_sequences);
    if (g.outputs.size() < n_states) return Wrong("a body that gives less than it takes");
    const auto list = [&](const char* name, size_t k) {
      const std::vector<int64_t> values = call.IntList(name);
      return k < values.size() ? values[k] : 0;
    };
    Arrays states;
    int64_t rounds = -1;
    for (size_t k = 0; k < call.n_inputs(); ++k) {
      SLM_ASSIGN_OR_RETURN(const Array* x, call.In(k));
      if (k < n_states) {
        states.push_back(*x);
        continue;
      }
      SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(list("scan_input_axes", k - n_states), x->dims.size()));
      const int64_t n = x->dims[static_cast<size_t>(axis)];
      if (rounds >= 0 && n != rounds) return Wrong("sequences of different lengths");
      rounds = n;
    }
    std::vector<Arrays> slices(g.outputs.size() - n_states);
    for (int64_t round = 0; round < rounds; ++round) {
      Arrays inputs = std::move(states);
      states.clear();
      for (size_t k = n_states; k < call.n_inputs(); ++k) {
        const int64_t at = list("scan_input_directions", k - n_states) != 0 ? rounds - 1 - round : round;
        SLM_ASSIGN_OR_RETURN(Array slice, SliceAt(*call.Optional(k), list("scan_input_axes", k - n_states), at));
        inputs.push_back(std::move(slice));
      }
      SLM_ASSIGN_OR_RETURN(Arrays made, RunBody(g, std::move(inputs), frame, outer));
      for (size_t k = 0; k < made.size(); ++k) {
        if (k < n_states) states.push_back(std::move(made[k]));
        else slices[k - n_states].push_back(std::move(made[k]));
      }
    }
    for (size_t k = 0; k < slices.size(); ++k) {
      if (list("scan_output_directions", k) != 0) std::reverse(slices[k].begin(), slices[k].end());
      SLM_ASSIGN_OR_RETURN(Array stacked,
                           slices[k].empty() ? StackOfNone(g.outputs[n_states + k]) : Stack(slices[k], list("scan_output_axes", k)));
      states.push_back(std::move(stacked));
    }
    return states;
  }

  Status CountRun() {
    if (++n_run_ > kMaxNodes) return Error(Code::kLimit, fmt::format("more than {} nodes in all", kMaxNodes), "test with a smaller graph");
    return Ok();
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
