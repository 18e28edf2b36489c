// Products, look-ups and operators that move values.
#include <algorithm>

#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

// Constants of masks and ranges are not made larger than this.
constexpr int64_t kMostValues = int64_t{1} << 22;

}  // namespace

std::optional<Piece> ProductAndSum(const Site& s) {
  const onnx::Node& n = s.node();
  const ElementType type = s.Type(0);
  if (!IsFloating(type) || !s.Given(1)) return std::nullopt;
  Builder b(s);
  const std::string a = n.Int("transA", 0) != 0 ? b.Transpose(n.inputs[0], {1, 0}) : n.inputs[0];
  const std::string w = n.Int("transB", 0) != 0 ? b.Transpose(n.inputs[1], {1, 0}) : n.inputs[1];
  const double alpha = s.Float("alpha", 1), beta = s.Float("beta", 1);
  const bool adds = s.Given(2) && beta != 0;
  if (!adds && alpha == 1) {
    b.To(0, "MatMul", {a, w});
    return b.Take();
  }
  std::string y = b.Op("MatMul", {a, w});
  if (!adds) {
    b.To(0, "Mul", {y, b.Number(type, alpha)});
    return b.Take();
  }
  if (alpha != 1) y = b.Op("Mul", {y, b.Number(type, alpha)});
  const std::string c = beta != 1 ? b.Op("Mul", {n.inputs[2], b.Number(type, beta)}) : n.inputs[2];
  b.To(0, "Add", {y, c});
  return b.Take();
}

// One index, or neighbours in order.
std::optional<Piece> GatherAsSlice(const Site& s) {
  const auto rank = s.Rank(0), index_rank = s.Rank(1);
  const targets::Value* data = s.In(0);
  Dims ids;
  if (!rank || !index_rank || *index_rank > 1 || !s.Ints(1, ids) || ids.empty()) return std::nullopt;
  const auto axis = FromFront(s.node().Int("axis", 0), *rank);
  if (!axis) return std::nullopt;
  const int64_t size = data->shape[static_cast<size_t>(*axis)].value;
  for (int64_t& id : ids) {
    if (id < 0 && size < 0) return std::nullopt;
    if (id < 0) id += size;
    if (id < 0 || id == INT64_MAX || (size >= 0 && id >= size)) return std::nullopt;
  }
  for (size_t k = 1; k < ids.size(); ++k)
    if (ids[k] != ids[0] + static_cast<int64_t>(k)) return std::nullopt;
  Builder b(s);
  const std::string part = b.Slice(s.node().inputs[0], *axis, ids[0], ids.back() + 1);
  if (*index_rank == 1) b.CallLast(s.node().outputs[0]);
  else b.To(0, "Squeeze", {part, b.Ints({*axis})});
  return b.Take();
}

// The row that a one-hot vector chooses of a table.
std::optional<Piece> OneHotProductAsGather(const Site& s) {
  const onnx::Node& n = s.node();
  Dims depth;
  const int product = s.OnlyReader(n.outputs[0]);
  const targets::Value *out = s.flat.Find(n.outputs[0]), *values = s.In(2);
  if (product < 0 || !s.Ints(1, depth) || depth.size() != 1 || !values || !values->fixed || !out) return std::nullopt;
  const onnx::Node& m = s.graph.nodes[static_cast<size_t>(product)];
  const auto rank = s.Rank(0);
  const int64_t axis = n.Int("axis", -1);
  if (m.op_type != "MatMul" || !m.domain.empty() || m.inputs.size() != 2 || m.inputs[0] != n.outputs[0] || !rank ||
      (axis != -1 && axis != *rank))
    return std::nullopt;
  const targets::Value* table = s.flat.Find(m.inputs[1]);
  if (!table || table->shape.size() != 2 || table->shape[0].value != depth[0] || depth[0] < 1) return std::nullopt;
  const ElementType ids = s.Type(0);
  if (ids != ElementType::kInt32 && ids != ElementType::kInt64) return std::nullopt;
  if (!values->tensor || values->tensor->n_values() != 2) return std::nullopt;
  const auto pair = reference::FromTensor(*values->tensor);
  if (!pair.ok() || pair.value().f.size() != 2 || pair.value().f[0] != 0 || pair.value().f[1] != 1) return std::nullopt;
  Builder b(s);
  b.ToName(m.outputs[0], "Gather", {m.inputs[1], n.inputs[0]}, {IntAttribute("axis", 0)});
  b.piece().between[n.inputs[0]] = {0, depth[0] - 1};
  return b.Take({static_cast<size_t>(product)});
}

std::optional<Piece> SoftmaxLastAxis(const Site& s) {
  const auto rank = s.Rank(0);
  const auto axis = rank ? FromFront(s.node().Int("axis", -1), *rank) : std::nullopt;
  if (!axis || *axis == *rank - 1) return std::nullopt;
  Dims swap;
  for (int64_t k = 0; k < *rank; ++k) swap.push_back(k);
  std::swap(swap[static_cast<size_t>(*axis)], swap.back());
  Builder b(s);
  const std::string y = b.Op("Softmax", {b.Transpose(s.node().inputs[0], swap)}, {IntAttribute("axis", -1)});
  b.To(0, "Transpose", {y}, {IntsAttribute("perm", swap)});
  return b.Take();
}

std::optional<Piece> TriluAsWhere(const Site& s) {
  const targets::Value* x = s.In(0);
  if (!x || !x->has_shape || x->shape.size() < 2 || !IsFloating(x->type)) return std::nullopt;
  const int64_t rows = x->shape[x->shape.size() - 2].value, columns = x->shape.back().value;
  Dims k{0};
  if (rows < 1 || columns < 1 || rows > kMostValues / columns || (s.Given(1) && (!s.Ints(1, k) || k.size() != 1))) return std::nullopt;
  if (k[0] < -kMostValues || k[0] > kMostValues) return std::nullopt;
  const bool upper = s.node().Int("upper", 1) != 0;
  Dims kept;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) kept.push_back((upper ? c >= r + k[0] : c <= r + k[0]) ? 1 : 0);
  Builder b(s);
  const std::string mask = b.Bools(std::move(kept), {rows, columns}), zero = b.Number(x->type, 0);
  b.To(0, "Where", {mask, s.node().inputs[0], zero});
  return b.Take();
}

}  // namespace slm::legalize
