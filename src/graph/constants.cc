// Values that are known at load: constants, and element-wise arithmetic on constants, whether the folding pass ran or not.
#include "graph/graph.h"

namespace slm::graph {
namespace {

int64_t Count(const Shape& s) {
  int64_t n = 1;
  for (int64_t d : s) n *= d;
  return n;
}

std::vector<float> Read(const Constant& c) {
  if (c.parts.empty()) return c.data;
  std::vector<float> all;
  for (const ConstantPart& p : c.parts) {
    const int64_t row = p.tensor->n_values() / p.tensor->dims[0];
    const std::vector<float> whole = model::DequantizeAll(*p.tensor);
    all.insert(all.end(), whole.begin() + p.row_begin * row, whole.begin() + p.row_end * row);
  }
  return all;
}

// Index into an input of shape `s` for flat index `i` of the broadcast result of shape `to`.
int64_t SourceIndex(const Shape& to, const Shape& s, int64_t i) {
  int64_t index = 0, stride = 1;
  for (size_t axis = to.size(), from = s.size(); axis-- > 0 && from > 0;) {
    --from;
    const int64_t coordinate = i % to[axis];
    i /= to[axis];
    if (s[from] != 1) index += coordinate * stride;
    stride *= s[from];
  }
  return index;
}

float Apply(Op op, float a, float b) { return op == Op::kAdd ? a + b : op == Op::kMul ? a * b : a / b; }

}  // namespace

bool IsFixed(const Graph& g, ValueId v) {
  if (v == kNoValue || g.IsConstant(v)) return v != kNoValue;
  const int i = g.ProducerOf(v);
  if (i < 0) return false;
  const Node& n = g.nodes[i];
  return (n.op == Op::kAdd || n.op == Op::kMul || n.op == Op::kDiv) && IsFixed(g, n.inputs[0]) && IsFixed(g, n.inputs[1]);
}

std::vector<float> FixedValues(const Graph& g, ValueId v) {
  if (g.IsConstant(v)) return Read(*g.values[v].constant);
  const int i = g.ProducerOf(v);
  SLM_ASSERT(i >= 0 && IsFixed(g, v));
  const Node& n = g.nodes[i];
  const std::vector<float> a = FixedValues(g, n.inputs[0]), b = FixedValues(g, n.inputs[1]);
  const Shape &to = g.values[v].shape, &from_a = g.values[n.inputs[0]].shape, &from_b = g.values[n.inputs[1]].shape;
  std::vector<float> out(static_cast<size_t>(Count(to)));
  for (size_t j = 0; j < out.size(); ++j) {
    const int64_t at = static_cast<int64_t>(j);
    out[j] = Apply(n.op, a[SourceIndex(to, from_a, at)], b[SourceIndex(to, from_b, at)]);
  }
  return out;
}

}  // namespace slm::graph
