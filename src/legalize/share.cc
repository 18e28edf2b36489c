// ShareMade: see state.h.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "legalize/state.h"

namespace slm::legalize {
namespace {

// What two nodes have alike that compute the same; "" for one that is not shared.
std::string Fingerprint(const onnx::Node& n) {
  // Of other domains nothing is known: such a node may draw random numbers, too.
  if (n.outputs.size() != 1 || !n.domain.empty() || !targets::IsRepeatable(n)) return "";
  std::string text = n.op_type;
  for (const std::string& in : n.inputs) text += '\0' + in;
  for (const onnx::Attribute& a : n.attributes) {
    if (!a.graphs.empty() || !a.tensors.empty() || !a.sparse_tensors.empty() || !a.types.empty()) return "";
    text += '\1' + a.name;
    for (const int64_t v : a.ints) text += '\2' + std::to_string(v);
    for (const float v : a.floats) text += '\3' + std::to_string(std::bit_cast<uint32_t>(v));  // every bit: an epsilon is small
    for (const std::string& v : a.strings) text += '\4' + v;
  }
  return text;
}

}  // namespace

void ShareMade(onnx::Graph& graph, const onnx::Graph& before) {
  std::set<std::string, std::less<>> old;
  for (const onnx::Tensor& t : before.initializers) old.insert(t.name);
  for (const onnx::Node& n : before.nodes) old.insert(n.outputs.begin(), n.outputs.end());
  for (const onnx::ValueInfo& v : graph.outputs) old.insert(v.name);
  std::map<std::string, std::string> instead;
  std::map<std::tuple<onnx::ElementType, Dims, std::string_view>, std::string> constants;
  for (const onnx::Tensor& t : graph.initializers) {
    if (old.contains(t.name)) continue;
    const auto [at, fresh] = constants.try_emplace({t.type, t.dims, {reinterpret_cast<const char*>(t.data.data()), t.data.size()}}, t.name);
    if (!fresh) instead[t.name] = at->second;
  }
  std::map<std::string, std::string> nodes;
  std::set<std::string> gone;
  for (onnx::Node& n : graph.nodes) {
    for (std::string& in : n.inputs)
      if (const auto at = instead.find(in); at != instead.end()) in = at->second;
    const std::string text = Fingerprint(n);
    if (text.empty() || old.contains(n.outputs[0])) continue;
    const auto [at, fresh] = nodes.try_emplace(text, n.outputs[0]);
    if (fresh) continue;
    instead[n.outputs[0]] = at->second;
    gone.insert(n.outputs[0]);
  }
  std::erase_if(graph.nodes, [&](const onnx::Node& n) { return n.outputs.size() == 1 && gone.contains(n.outputs[0]); });
  std::erase_if(graph.initializers, [&](const onnx::Tensor& t) { return instead.contains(t.name); });
}

}  // namespace slm::legalize
