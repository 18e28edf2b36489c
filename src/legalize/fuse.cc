// Forms in pieces as the one operator that computes them: what exporters of older operator sets write.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

const onnx::Node* At(const Site& s, int node) { return node < 0 ? nullptr : &s.graph.nodes[static_cast<size_t>(node)]; }

// The file may give an operator fewer inputs than it has.
bool Is(const Site& s, int node, std::string_view op) {
  const onnx::Node* n = At(s, node);
  const size_t n_inputs = op == "Sqrt" || op == "Reciprocal" ? 1 : 2;
  return n && n->op_type == op && n->domain.empty() && !n->outputs.empty() && n->inputs.size() == n_inputs;
}

// The other input of a node with two; "" when `value` is neither.
std::string Other(const onnx::Node& n, const std::string& value) {
  if (n.inputs.size() != 2) return "";
  return n.inputs[0] == value ? n.inputs[1] : n.inputs[1] == value ? n.inputs[0] : "";
}

// A value's readers that are no other than these nodes of the form, and it is not the graph's output.
bool OnlyRead(const Site& s, const std::string& value, const std::vector<int>& form) {
  const targets::Value* v = s.flat.Find(value);
  if (!v || v->graph_output) return false;
  return std::all_of(v->consumers.begin(), v->consumers.end(), [&](int reader) {
    const targets::FlatNode& n = s.flat.nodes[static_cast<size_t>(reader)];
    return n.owner < 0 && !n.node.outputs.empty() &&
           std::any_of(form.begin(), form.end(), [&](int f) { return s.graph.nodes[static_cast<size_t>(f)].outputs == n.node.outputs; });
  });
}

// All values inside a form are read by it alone; the last node's is its result.
bool Closed(const Site& s, const std::vector<int>& form) {
  for (size_t k = 0; k + 1 < form.size(); ++k)
    if (!OnlyRead(s, s.graph.nodes[static_cast<size_t>(form[k])].outputs[0], form)) return false;
  return true;
}

std::optional<Piece> Taken(const Site& s, Builder& b, const std::vector<int>& form) {
  std::vector<size_t> more;
  for (const int f : form)
    if (static_cast<size_t>(f) != s.at) more.push_back(static_cast<size_t>(f));
  return b.Take(std::move(more));
}

}  // namespace

// From the mean of squares: x / sqrt(mean(x * x) + epsilon) * weight, over the last dimension.
std::optional<Piece> RmsNormFromPieces(const Site& s) {
  const onnx::Node& mean = s.node();
  const auto rank = s.Rank(0);
  const auto axes = ReducedAxes(s);
  if (!axes || *axes != Dims{*rank - 1} || mean.Int("keepdims", 1) == 0) return std::nullopt;
  const int square = s.Maker(mean.inputs[0]);
  const bool power = Is(s, square, "Pow") && s.Number(At(s, square)->inputs[1]) == 2.0;
  if (!power && !(Is(s, square, "Mul") && At(s, square)->inputs[0] == At(s, square)->inputs[1])) return std::nullopt;
  const std::string x = At(s, square)->inputs[0];
  const int plus = s.OnlyReader(mean.outputs[0]);
  if (!Is(s, plus, "Add")) return std::nullopt;
  const auto epsilon = s.Number(Other(*At(s, plus), mean.outputs[0]));
  const int root = s.OnlyReader(At(s, plus)->outputs[0]);
  if (!epsilon || !Is(s, root, "Sqrt")) return std::nullopt;
  std::vector<int> form{square, static_cast<int>(s.at), plus, root};
  int last = s.OnlyReader(At(s, root)->outputs[0]);
  if (Is(s, last, "Reciprocal") || (Is(s, last, "Div") && s.Number(At(s, last)->inputs[0]) == 1.0)) {
    form.push_back(last);
    const std::string inverse = At(s, last)->outputs[0];
    last = s.OnlyReader(inverse);
    if (!Is(s, last, "Mul") || Other(*At(s, last), inverse) != x) return std::nullopt;
  } else if (!Is(s, last, "Div") || At(s, last)->inputs[0] != x || At(s, last)->inputs[1] != At(s, root)->outputs[0]) {
    return std::nullopt;
  }
  form.push_back(last);
  const std::string normal = At(s, last)->outputs[0];
  const int scaled = s.OnlyReader(normal);
  const targets::Value* value = s.flat.Find(x);
  if (!Is(s, scaled, "Mul") || !value || !value->has_shape || value->shape.empty()) return std::nullopt;
  const std::string weight = Other(*At(s, scaled), normal);
  const targets::Value* w = s.flat.Find(weight);
  if (!w || !w->fixed || w->shape.size() != 1 || w->shape[0].value != value->shape.back().value || w->type != value->type)
    return std::nullopt;
  form.push_back(scaled);
  if (!Closed(s, form)) return std::nullopt;
  Builder b(s);
  b.ToName(At(s, scaled)->outputs[0], "RMSNormalization", {x, weight}, {IntAttribute("axis", -1), FloatAttribute("epsilon", *epsilon)});
  b.piece().least_opset = 23;
  return Taken(s, b, form);
}

// x * (1 + erf(x / sqrt 2)) / 2, halved before or after.
std::optional<Piece> GeluFromPieces(const Site& s) {
  const onnx::Node& erf = s.node();
  const int scaled = s.Maker(erf.inputs[0]), plus = s.OnlyReader(erf.outputs[0]);
  if (!Is(s, plus, "Add") || s.Number(Other(*At(s, plus), erf.outputs[0])) != 1.0) return std::nullopt;
  constexpr double kClose = 1e-3;  // constants are written in the type of the values
  const bool divides = Is(s, scaled, "Div"), multiplies = Is(s, scaled, "Mul");
  if (!divides && !multiplies) return std::nullopt;
  const auto by = s.Number(At(s, scaled)->inputs[1]);
  if (!by || std::abs(*by - (divides ? std::numbers::sqrt2 : 1 / std::numbers::sqrt2)) > kClose) return std::nullopt;
  const std::string x = At(s, scaled)->inputs[0], one_plus = At(s, plus)->outputs[0];
  const int product = s.OnlyReader(one_plus);
  if (!Is(s, product, "Mul")) return std::nullopt;
  const auto halves = [&](int node, const std::string& of) {
    const bool mul = Is(s, node, "Mul") && s.Number(Other(*At(s, node), of)) == 0.5;
    return mul || (Is(s, node, "Div") && At(s, node)->inputs[0] == of && s.Number(At(s, node)->inputs[1]) == 2.0);
  };
  std::vector<int> form{scaled, static_cast<int>(s.at), plus};
  const std::string other = Other(*At(s, product), one_plus);
  int last = product;
  if (other == x) {
    form.push_back(product);
    last = s.OnlyReader(At(s, product)->outputs[0]);
    if (!halves(last, At(s, product)->outputs[0])) return std::nullopt;
  } else {
    const int half = s.Maker(other);
    if (half < 0 || !halves(half, x)) return std::nullopt;
    form.push_back(half);
  }
  form.push_back(last);
  if (!Closed(s, form)) return std::nullopt;
  Builder b(s);
  b.ToName(At(s, last)->outputs[0], "Gelu", {x});
  b.piece().least_opset = 20;
  return Taken(s, b, form);
}

}  // namespace slm::legalize
