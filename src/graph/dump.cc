// Dump: the graph as text, one line a constant and one line a node, in the order of the graph. Names and numbers only, no
// addresses or ids, so that two runs (and two machines) print the same bytes.
#include <fmt/format.h>

#include <vector>

#include "graph/graph.h"
#include "graph/infer.h"

namespace slm::graph {
namespace {

std::string Storage(const Constant& c) {
  if (!c.data.empty()) return c.data.size() == 1 ? fmt::format("f32 = {}", c.data[0]) : "f32 computed";
  std::string text;
  for (const ConstantPart& p : c.parts) {
    if (!text.empty()) text += " | ";
    text += fmt::format("{} {}", model::TypeName(*p.tensor), p.tensor->name);
    if (p.row_begin != 0 || p.row_end != p.tensor->dims[0]) text += fmt::format("[{}:{}]", p.row_begin, p.row_end);
  }
  return text;
}

std::string AttrText(const Attr& a) {
  const std::string name = AttrName(a.key);
  if (const int64_t* i = std::get_if<int64_t>(&a.value)) return fmt::format("{}={}", name, *i);
  if (const float* f = std::get_if<float>(&a.value)) return fmt::format("{}={}", name, *f);
  return fmt::format("{}=\"{}\"", name, std::get<std::string>(a.value));
}

std::string NodeLine(const Graph& g, const Node& n) {
  std::string line;
  for (size_t i = 0; i < n.outputs.size(); ++i)
    line += fmt::format("{}%{} {}", i ? ", " : "", g.values[n.outputs[i]].name, ShapeText(g.values[n.outputs[i]].shape));
  line += fmt::format(" = {}(", Info(n.op).name);
  for (size_t i = 0; i < n.inputs.size(); ++i)
    line += fmt::format("{}{}", i ? ", " : "", n.inputs[i] == kNoValue ? std::string("_") : "%" + g.values[n.inputs[i]].name);
  line += ")";
  for (size_t i = 0; i < n.attrs.size(); ++i) line += (i ? ", " : " {") + AttrText(n.attrs[i]);
  if (!n.attrs.empty()) line += "}";
  return line;
}

}  // namespace

std::string Dump(const Graph& g) {
  std::vector<bool> used(g.values.size(), false);
  for (const Node& n : g.nodes)
    for (ValueId id : n.inputs)
      if (id != kNoValue) used[id] = true;
  std::string text = fmt::format("inputs %{} [T] i64, %{} [T] i64\n", g.values[g.input_ids].name, g.values[g.input_positions].name);
  for (size_t i = 0; i < g.values.size(); ++i) {
    const Value& v = g.values[i];
    if (v.constant && used[i]) text += fmt::format("const %{} {}: {}\n", v.name, ShapeText(v.shape), Storage(*v.constant));
  }
  for (const Node& n : g.nodes) text += NodeLine(g, n) + "\n";
  text += fmt::format("outputs %{}\n", g.values[g.output_logits].name);
  return text;
}

}  // namespace slm::graph
