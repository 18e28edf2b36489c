// Lookups over the plain data of ir.h: the operator table, attribute spelling and access, edges.
#include "graph/ir.h"

#include <algorithm>
#include <array>

namespace slm::graph {

const OpInfo& Info(Op op) {
  static constexpr OpInfo kTable[] = {
#define SLM_OP(id, name, domain) {name, domain},
#include "graph/ops.inc"
#undef SLM_OP
  };
  SLM_ASSERT(op < Op::kCount);
  return kTable[static_cast<int>(op)];
}

const char* AttrName(AttrKey key) {
  switch (key) {
    case AttrKey::kEpsilon: return "epsilon";
    case AttrKey::kApproximate: return "approximate";
    case AttrKey::kInterleaved: return "interleaved";
    case AttrKey::kNumHeads: return "num_heads";
    case AttrKey::kKvNumHeads: return "kv_num_heads";
    case AttrKey::kRotaryDim: return "rotary_embedding_dim";
    case AttrKey::kScale: return "scale";
    case AttrKey::kSoftcap: return "softcap";
    case AttrKey::kLocalWindow: return "local_window_size";
    case AttrKey::kDoRotary: return "do_rotary";
    case AttrKey::kActivation: return "activation";
    case AttrKey::kLayer: return "layer";
    case AttrKey::kTransB: return "transB";
  }
  SLM_ASSERT(false);
  return "";
}

namespace {

template <class T>
const T* FindAttr(const Node& node, AttrKey key) {
  for (const Attr& a : node.attrs)
    if (a.key == key) return std::get_if<T>(&a.value);
  return nullptr;
}

}  // namespace

int64_t Node::Int(AttrKey key, int64_t otherwise) const {
  const int64_t* v = FindAttr<int64_t>(*this, key);
  return v ? *v : otherwise;
}

float Node::Float(AttrKey key, float otherwise) const {
  const float* v = FindAttr<float>(*this, key);
  return v ? *v : otherwise;
}

std::string Node::String(AttrKey key, const std::string& otherwise) const {
  const std::string* v = FindAttr<std::string>(*this, key);
  return v ? *v : otherwise;
}

ValueId Graph::AddValue(Value v) {
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size()) - 1;
}

int Graph::ProducerOf(ValueId id) const {
  for (size_t n = 0; n < nodes.size(); ++n)
    if (std::find(nodes[n].outputs.begin(), nodes[n].outputs.end(), id) != nodes[n].outputs.end()) return static_cast<int>(n);
  return -1;
}

std::vector<int> Graph::ConsumersOf(ValueId id) const {
  std::vector<int> users;
  for (size_t n = 0; n < nodes.size(); ++n)
    if (std::find(nodes[n].inputs.begin(), nodes[n].inputs.end(), id) != nodes[n].inputs.end()) users.push_back(static_cast<int>(n));
  return users;
}

}  // namespace slm::graph
