// See flatten.h. The reader has checked that functions do not call themselves and that every name has one meaning.
#include "importer/flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "model/quoted.h"
#include "onnx/inline.h"

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

// Whose nodes are put into the flat graph.
struct Frame {
  onnx::FunctionCall call;
  std::string prefix;  // of names
  int depth = 0;
};

class Flattener {
 public:
  Flattener(const onnx::Model& from, onnx::Model& to) : from_(from), to_(to), functions_(from.functions) {}

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

  static bool IsIf(const Node& n) { return n.domain.empty() && n.op_type == "If"; }

  // The node as it stands in the flat graph, but for the names of its outputs and, of an If, the branches: a copy of them at every level
  // would be a copy for each level around.
  static Node Copied(const Node& n, const Scope& scope, const Frame& frame) {
    Node out{n.name, n.op_type, n.domain, n.overload, n.inputs, n.outputs, {}};
    if (!frame.prefix.empty()) out.name = frame.prefix + (n.name.empty() ? n.op_type : n.name);
    for (std::string& name : out.inputs)
      if (!name.empty()) name = scope.Find(name);
    for (const onnx::Attribute& a : n.attributes) {
      const onnx::Attribute* value = frame.call.ValueOf(a);
      if (!value || (IsIf(n) && !value->graphs.empty())) continue;
      out.attributes.push_back(*value);
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
      if (const onnx::Function* f = functions_.Of(n)) {
        SLM_RETURN_IF_ERROR(Inline(*f, copy, frame, out));
        continue;
      }
      if (IsIf(n)) SLM_RETURN_IF_ERROR(AddBranches(n, scope, frame, copy));
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
    const Frame inner{{&f, &call}, Prefix(call, f.name, ""), frame.depth + 1};
    Scope body;
    for (size_t i = 0; i < f.inputs.size(); ++i) body.names[f.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
    std::vector<std::pair<std::string, std::string>> same;  // outputs that are inputs, or other outputs
    for (size_t i = 0; i < f.outputs.size() && i < call.outputs.size(); ++i) {
      if (call.outputs[i].empty()) continue;
      if (!body.names.try_emplace(f.outputs[i], call.outputs[i]).second) same.emplace_back(f.outputs[i], call.outputs[i]);
    }
    SLM_RETURN_IF_ERROR(Append(f.nodes, body, inner, out));
    for (const auto& [from, to] : same) out.push_back(onnx::IdentityNode(inner.prefix + "Identity", body.Find(from), to));
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

  Status AddBranches(const Node& n, const Scope& scope, const Frame& frame, Node& copy) {
    for (const onnx::Attribute& a : n.attributes) {
      const onnx::Attribute* value = frame.call.ValueOf(a);
      if (!value || value->graphs.empty()) continue;
      onnx::Attribute branches{.name = a.name, .kind = value->kind};
      for (const onnx::Graph& g : value->graphs) {
        SLM_ASSIGN_OR_RETURN(onnx::Graph branch, Renamed(g, copy, a.name, scope, frame));
        branches.graphs.push_back(std::move(branch));
      }
      copy.attributes.push_back(std::move(branches));
    }
    return Ok();
  }

  Result<onnx::Graph> Renamed(const onnx::Graph& g, const Node& node, const std::string& branch, const Scope& outer, const Frame& frame) {
    if (!g.sparse_initializers.empty() || frame.depth == kMostDepth)
      return Error(Code::kUnsupported, "node " + Quoted(node.name) + ": sparse weights in a branch, or branches in branches",
                   "export the model in another form");
    Frame inner = frame;
    inner.prefix = Prefix(node, "If", branch + "/");
    ++inner.depth;
    Scope scope{&outer, {}};
    for (const onnx::Tensor& t : g.initializers) {
      to_.graph.initializers.push_back(t);
      scope.names[t.name] = to_.graph.initializers.back().name = Unique(inner.prefix, t.name);
    }
    onnx::Graph out;
    SLM_RETURN_IF_ERROR(Append(g.nodes, scope, inner, out.nodes));
    for (const onnx::ValueInfo& v : g.outputs) out.outputs.push_back({scope.Find(v.name), v.type});
    return out;
  }

  const onnx::Model& from_;
  onnx::Model& to_;
  onnx::FunctionIndex functions_;
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

}  // namespace slm::importer
