// See flatten.h. The reader has checked that functions do not call themselves and that every name has one meaning.
#include "importer/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "model/quoted.h"

namespace slm::importer {
namespace {

using model::Quoted;
using onnx::Node;

constexpr size_t kMostNodes = size_t{1} << 17;  // twenty times a decoder of 100 layers in single steps
constexpr size_t kMostBytes = size_t{1} << 28;  // of the nodes' names and attributes, which every call of a function copies
constexpr int kMostDepth = 100;                 // functions in functions
constexpr size_t kMostPrefix = 200;             // of a name's places, the outermost are left out

size_t BytesOf(const Node& n) {
  size_t bytes = sizeof n + n.name.size() + n.op_type.size() + n.domain.size();
  for (const auto* names : {&n.inputs, &n.outputs})
    for (const std::string& name : *names) bytes += sizeof name + name.size();
  for (const onnx::Attribute& a : n.attributes) {
    bytes += sizeof a + a.name.size() + 4 * a.floats.size() + 8 * a.ints.size() + sizeof(onnx::Tensor) * a.tensors.size();
    for (const std::string& s : a.strings) bytes += sizeof s + s.size();
  }
  return bytes;
}

std::string Prefix(const Node& n, const std::string& otherwise, const std::string& part) {
  const std::string& name = n.name.empty() ? otherwise : n.name;
  return name.substr(name.size() - std::min(name.size(), kMostPrefix)) + "/" + part;
}

Node Identity(const std::string& prefix, const std::string& from, const std::string& to) {
  Node n;
  n.op_type = "Identity", n.name = prefix + "Identity";
  n.inputs = {from}, n.outputs = {to};
  return n;
}

// What a name of a function's body, or of a branch, is called in the flat graph.
struct Scope {
  const Scope* outer = nullptr;
  std::map<std::string, std::string> names;
  std::string Find(const std::string& name) const {
    for (const Scope* s = this; s; s = s->outer)
      if (const auto at = s->names.find(name); at != s->names.end()) return at->second;
    return name;  // of the main graph
  }
};

// Whose nodes are copied: `caller` and `function` are null for the main graph.
struct Frame {
  const onnx::Function* function = nullptr;
  const Node* caller = nullptr;  // resolved
  std::string prefix;            // of names
  int depth = 0;
};

class Flattener {
 public:
  Flattener(const onnx::Model& from, onnx::Model& to) : from_(from), to_(to) {
    for (const onnx::Function& f : from.functions) functions_.emplace(std::tie(f.domain, f.name, f.overload), &f);
  }

  Status Run() {
    for (const onnx::Tensor& t : from_.graph.initializers) used_.insert(t.name);
    for (const onnx::ValueInfo& v : from_.graph.inputs) used_.insert(v.name);
    for (const Node& n : from_.graph.nodes) used_.insert(n.outputs.begin(), n.outputs.end());
    Scope scope;
    return Append(from_.graph.nodes, scope, {}, to_.graph.nodes);
  }

 private:
  std::string Unique(const std::string& prefix, const std::string& name) {
    const std::string whole = prefix + name.substr(name.size() - std::min(name.size(), kMostPrefix));
    std::string candidate = whole;
    for (int& i = next_[whole]; !used_.insert(candidate).second; ++i) candidate = fmt::format("{}#{}", whole, i + 2);
    return candidate;
  }

  const onnx::Function* FunctionOf(const Node& n) const {
    const auto at = functions_.find(std::tie(n.domain, n.op_type, n.overload));
    return at == functions_.end() ? nullptr : at->second;
  }

  // The node as it stands in the flat graph, but for the names of its outputs and the graphs inside it.
  static Node Copied(const Node& n, const Scope& scope, const Frame& frame) {
    Node out = n;
    if (!frame.prefix.empty()) out.name = frame.prefix + (n.name.empty() ? n.op_type : n.name);
    for (std::string& name : out.inputs)
      if (!name.empty()) name = scope.Find(name);
    if (!frame.function) return out;
    out.attributes.clear();
    for (const onnx::Attribute& a : n.attributes) {
      const onnx::Attribute* given = &a;
      if (!a.ref.empty()) {
        given = frame.caller->Find(a.ref);
        for (const onnx::Attribute& standard : frame.function->attributes)
          if (!given && standard.name == a.ref) given = &standard;
      }
      if (!given) continue;  // left out by the caller: left out here
      out.attributes.push_back(*given);
      out.attributes.back().name = a.name;
    }
    return out;
  }

  Status Append(const std::vector<Node>& nodes, Scope& scope, const Frame& frame, std::vector<Node>& out) {
    for (const Node& n : nodes) {
      Node copy = Copied(n, scope, frame);
      for (std::string& name : copy.outputs) {
        if (name.empty() || (frame.prefix.empty() && !scope.outer)) continue;
        const auto [at, is_new] = scope.names.try_emplace(name, "");
        if (is_new) at->second = Unique(frame.prefix, name);
        name = at->second;
      }
      SLM_RETURN_IF_ERROR(Count(copy));
      if (const onnx::Function* f = FunctionOf(n)) {
        SLM_RETURN_IF_ERROR(Inline(*f, copy, frame, out));
        continue;
      }
      if (copy.domain.empty() && copy.op_type == "If")
        for (onnx::Attribute& a : copy.attributes)
          for (onnx::Graph& g : a.graphs) SLM_RETURN_IF_ERROR(Rename(g, copy, a.name, scope, frame));
      out.push_back(std::move(copy));
    }
    return Ok();
  }

  // Nodes and calls of functions, which may be empty.
  Status Count(const Node& n) {
    bytes_ += BytesOf(n);
    if (++n_nodes_ <= kMostNodes && bytes_ <= kMostBytes) return Ok();
    return Error(Code::kLimit, fmt::format("more than {} nodes, or {} bytes of them, with those of the functions", kMostNodes, kMostBytes),
                 "export the model without functions");
  }

  Status Inline(const onnx::Function& f, const Node& call, const Frame& frame, std::vector<Node>& out) {
    if (frame.depth == kMostDepth)
      return Error(Code::kLimit, fmt::format("functions call each other more than {} deep", kMostDepth), "export without functions");
    SLM_RETURN_IF_ERROR(Import(f));
    const Frame inner{&f, &call, Prefix(call, f.name, ""), frame.depth + 1};
    Scope body;
    for (size_t i = 0; i < f.inputs.size(); ++i) body.names[f.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
    std::vector<std::pair<std::string, std::string>> same;  // outputs that are inputs, or other outputs
    for (size_t i = 0; i < f.outputs.size() && i < call.outputs.size(); ++i) {
      if (call.outputs[i].empty()) continue;
      if (!body.names.try_emplace(f.outputs[i], call.outputs[i]).second) same.emplace_back(f.outputs[i], call.outputs[i]);
    }
    SLM_RETURN_IF_ERROR(Append(f.nodes, body, inner, out));
    for (const auto& [from, to] : same) out.push_back(Identity(inner.prefix, body.Find(from), to));
    return Ok();
  }

  // Operator sets of a function that the file does not import are added; other versions would change what its nodes mean.
  Status Import(const onnx::Function& f) {
    for (const onnx::Opset& o : f.opsets) {
      const int64_t version = onnx::OpsetVersion(to_.opsets, o.domain);
      const bool needed = std::any_of(f.nodes.begin(), f.nodes.end(), [&](const Node& n) { return n.domain == o.domain; });
      if (version == 0) to_.opsets.push_back(o);
      else if (version != o.version && needed)
        return Error(Code::kUnsupported,
                     fmt::format("function {} of operator set {} {} in a file of {}", Quoted(f.name), Quoted(o.domain), o.version, version),
                     "export the model without functions");
    }
    return Ok();
  }

  Status Rename(onnx::Graph& g, const Node& node, const std::string& branch, const Scope& outer, const Frame& frame) {
    if (!g.sparse_initializers.empty() || frame.depth == kMostDepth)
      return Error(Code::kUnsupported, "node " + Quoted(node.name) + ": sparse weights in a branch, or branches in branches",
                   "export the model in another form");
    Frame inner = frame;
    inner.prefix = Prefix(node, "If", branch + "/");
    ++inner.depth;
    Scope scope{&outer, {}};
    for (onnx::Tensor& t : g.initializers) {
      scope.names[t.name] = Unique(inner.prefix, t.name);
      t.name = scope.names[t.name];
      to_.graph.initializers.push_back(std::move(t));
    }
    g.initializers.clear();
    std::vector<Node> nodes;
    SLM_RETURN_IF_ERROR(Append(g.nodes, scope, inner, nodes));
    g.nodes = std::move(nodes);
    for (onnx::ValueInfo& v : g.outputs) v.name = scope.Find(v.name);
    return Ok();
  }

  const onnx::Model& from_;
  onnx::Model& to_;
  std::map<std::tuple<std::string, std::string, std::string>, const onnx::Function*> functions_;
  std::set<std::string> used_;
  std::map<std::string, int> next_;
  size_t n_nodes_ = 0, bytes_ = 0;
};

}  // namespace

Result<std::shared_ptr<onnx::Model>> Flatten(std::shared_ptr<const onnx::Model> m) {
  auto flat = std::make_shared<onnx::Model>();
  flat->path = m->path;
  flat->opsets = m->opsets;
  flat->graph.name = m->graph.name;
  flat->graph.initializers = m->graph.initializers;
  flat->graph.sparse_initializers = m->graph.sparse_initializers;
  flat->graph.inputs = m->graph.inputs;
  flat->graph.outputs = m->graph.outputs;
  SLM_RETURN_IF_ERROR(Flattener(*m, *flat).Run());
  flat->storage = std::move(m);
  return flat;
}

Status TakeBranch(onnx::Graph& g, size_t at, Branch which) {
  const char* name = which == Branch::kThen ? "then_branch" : "else_branch";
  const Node node = std::move(g.nodes[at]);
  const onnx::Attribute* branch = node.Find(name);
  if (!branch || branch->graphs.size() != 1 || branch->graphs[0].outputs.size() != node.outputs.size())
    return Error(Code::kCorrupt, fmt::format("{} is missing, or of other outputs than its node", name), "export or fetch the file again");
  std::vector<Node> nodes = branch->graphs[0].nodes;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (!node.outputs[i].empty()) nodes.push_back(Identity(Prefix(node, "If", ""), branch->graphs[0].outputs[i].name, node.outputs[i]));
  g.nodes.erase(g.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  g.nodes.insert(g.nodes.begin() + static_cast<std::ptrdiff_t>(at), std::make_move_iterator(nodes.begin()),
                 std::make_move_iterator(nodes.end()));
  return Ok();
}

}  // namespace slm::importer
