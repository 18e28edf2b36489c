// Operators that change shapes only, and those that make values from a shape.
#include <algorithm>
#include <cmath>

#include "reference/call.h"

namespace slm::reference {
namespace {

// Axes come as an input since operator set 13, before that as an attribute.
Result<std::vector<int64_t>> AxesOf(const Call& c) {
  if (c.Optional(1)) return c.Ints(1);
  return c.IntList("axes");
}

Result<Arrays> WithDims(const Array& x, Dims dims) {
  SLM_ASSIGN_OR_RETURN(const int64_t n, Count(dims));
  if (n != x.size()) return Wrong("shape " + onnx::ShapeText(x.dims) + " cannot become " + onnx::ShapeText(dims));
  Array y = x;
  y.dims = std::move(dims);
  return One(std::move(y));
}

}  // namespace

Array ShapeContent(const onnx::Node& node, std::span<const int64_t> dims) {
  if (node.op_type == "Size") {
    Array y = IntVector({1});
    y.dims = {};
    for (const int64_t d : dims)
      if (d < 0 || __builtin_mul_overflow(y.i[0], d, &y.i[0])) {
        y.i[0] = -1;
        break;
      }
    return y;
  }
  const auto rank = static_cast<int64_t>(dims.size());
  const auto bound = [rank](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const int64_t begin = bound(node.Int("start", 0)), end = std::max(begin, bound(node.Int("end", rank)));
  return IntVector(Dims(dims.begin() + begin, dims.begin() + end));
}

Result<Arrays> Constant(const Call& c) {
  const onnx::Attribute* a = nullptr;
  for (const char* name : {"value", "value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings"})
    if (const onnx::Attribute* found = c.node().Find(name)) a = found;
  if (!a || (a->name != "value" && !a->tensors.empty())) return Refuse("a constant that is not a tensor, numbers or strings");
  if (!a->tensors.empty()) {
    SLM_ASSIGN_OR_RETURN(Array y, FromTensor(a->tensors[0]));
    return One(std::move(y));
  }
  const bool list = a->name.back() == 's';
  Array y;
  y.f.assign(a->floats.begin(), a->floats.end());
  y.i = a->ints;
  y.s = a->strings;
  y.type = a->name.starts_with("value_float") ? ElementType::kFloat
           : a->name.starts_with("value_int") ? ElementType::kInt64
                                              : ElementType::kString;
  if (list) y.dims = {y.size()};
  else if (y.size() != 1) return Wrong("a constant without a value");
  return One(std::move(y));
}

Result<Arrays> ConstantOfShape(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const auto dims, c.Ints(0));
  const onnx::Attribute* a = c.node().Find("value");
  Array value = Scalar(ElementType::kFloat, 0);
  if (a && !a->tensors.empty()) {
    SLM_ASSIGN_OR_RETURN(value, FromTensor(a->tensors[0]));
  }
  if (value.size() != 1) return Wrong("the value is not one value");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(value.type, dims));
  for (int64_t k = 0; k < y.size(); ++k) CopyValue(value, 0, y, k);
  return One(std::move(y));
}

Result<Arrays> Range(const Call& c) {
  double bounds[3] = {};
  bounds[2] = 1;  // that of com.microsoft may be left out
  for (size_t k = 0; k < 3; ++k) {
    if (k == 2 && !c.Optional(2) && !c.node().domain.empty()) break;
    SLM_ASSIGN_OR_RETURN(const Array* x, c.In(k, Accept::kNumber));
    if (x->size() != 1 || x->type != c.Optional(0)->type) return Wrong("start, limit and step are not three values of a type");
    bounds[k] = Number(*x, 0);
  }
  const double n = std::ceil((bounds[1] - bounds[0]) / bounds[2]);
  if (bounds[2] == 0 || std::isnan(n)) return Wrong("a step of zero");
  if (n > static_cast<double>(kMaxValues))
    return Error(Code::kLimit, "a range of more values than are computed", "test with a shorter range");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(c.Optional(0)->type, {static_cast<int64_t>(std::fmax(n, 0))}));
  for (int64_t k = 0; k < y.size(); ++k) Set(y, k, bounds[0] + static_cast<double>(k) * bounds[2]);
  return One(std::move(y));
}

Result<Arrays> ShapeOf(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  return One(ShapeContent(c.node(), x->dims));
}

Result<Arrays> Reshape(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(Dims dims, c.Ints(1));
  const bool zero_is_zero = c.Int("allowzero", 0) != 0;
  int64_t known = 1, open = -1;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] == 0 && !zero_is_zero) {
      if (k >= x->dims.size()) return Wrong("a 0 without a dimension to copy");
      dims[k] = x->dims[k];
    }
    if (dims[k] == -1) {
      if (open >= 0) return Wrong("two dimensions of -1");
      open = static_cast<int64_t>(k);
    } else {
      SLM_ASSIGN_OR_RETURN(known, Count({known, dims[k]}));
    }
  }
  if (open >= 0) {
    if (known == 0 || x->size() % known != 0) return Wrong("shape " + onnx::ShapeText(x->dims) + " cannot become " + onnx::ShapeText(dims));
    dims[static_cast<size_t>(open)] = x->size() / known;
  }
  return WithDims(*x, std::move(dims));
}

Result<Arrays> Flatten(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  const int64_t rank = static_cast<int64_t>(x->dims.size());
  int64_t axis = c.Int("axis", 1);
  if (axis < -rank || axis > rank) return Wrong(fmt::format("axis {} of {} dimensions", axis, rank));
  if (axis < 0) axis += rank;
  int64_t rows = 1, columns = 1;
  for (int64_t k = 0; k < rank; ++k) (k < axis ? rows : columns) *= x->dims[static_cast<size_t>(k)];
  return WithDims(*x, {rows, columns});
}

Result<Arrays> Squeeze(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const auto axes, AxesOf(c));
  std::vector<uint8_t> gone(x->dims.size());
  for (const int64_t a : axes) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(a, x->dims.size()));
    if (x->dims[static_cast<size_t>(axis)] != 1) return Wrong("a dimension that is not 1 cannot be taken away");
    gone[static_cast<size_t>(axis)] = 1;
  }
  Dims dims;
  for (size_t k = 0; k < x->dims.size(); ++k)
    if (axes.empty() ? x->dims[k] != 1 : gone[k] == 0) dims.push_back(x->dims[k]);
  return WithDims(*x, std::move(dims));
}

Result<Arrays> Unsqueeze(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const auto axes, AxesOf(c));
  const size_t rank = x->dims.size() + axes.size();
  std::vector<uint8_t> added(rank);
  for (const int64_t a : axes) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(a, rank));
    if (added[static_cast<size_t>(axis)]++ != 0) return Wrong("an axis stands twice");
  }
  Dims dims;
  size_t next = 0;
  for (size_t k = 0; k < rank; ++k) dims.push_back(added[k] ? 1 : x->dims[next++]);
  return WithDims(*x, std::move(dims));
}

// com.microsoft: a dimension of 1 at a place given as a scalar.
Result<Arrays> ExpandDims(const Call& c) { return Unsqueeze(c); }

Result<Arrays> Expand(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Dims asked, c.Ints(1));
  SLM_ASSIGN_OR_RETURN(const Dims dims, BroadcastShape(x->dims, asked));
  SLM_ASSIGN_OR_RETURN(Array y, BroadcastTo(*x, dims));
  return One(std::move(y));
}

Result<Arrays> Tile(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const auto repeats, c.Ints(1));
  if (repeats.size() != x->dims.size()) return Wrong("as many repeats as dimensions are needed");
  Dims dims = x->dims;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (repeats[k] < 0 || (dims[k] > 0 && repeats[k] > kMaxValues / dims[k])) return Wrong("repeats that are negative or too many");
    dims[k] *= repeats[k];
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  const Dims own = Strides(x->dims), out = Strides(dims);
  for (int64_t k = 0; k < y.size(); ++k) {
    int64_t from = 0;
    for (size_t d = 0; d < dims.size(); ++d) from += k / out[d] % dims[d] % x->dims[d] * own[d];
    CopyValue(*x, from, y, k);
  }
  return One(std::move(y));
}

Result<Arrays> Transpose(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  const size_t rank = x->dims.size();
  std::vector<int64_t> perm = c.IntList("perm");
  if (perm.empty())
    for (size_t k = rank; k-- > 0;) perm.push_back(static_cast<int64_t>(k));
  std::vector<uint8_t> seen(rank);
  if (perm.size() != rank) return Wrong("perm does not have every dimension");
  Dims dims, steps;
  const Dims own = Strides(x->dims);
  for (const int64_t p : perm) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(p, rank));
    if (seen[static_cast<size_t>(axis)]++ != 0) return Wrong("perm has a dimension twice");
    dims.push_back(x->dims[static_cast<size_t>(axis)]);
    steps.push_back(own[static_cast<size_t>(axis)]);
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  Walk(dims, {steps}, [&](int64_t at, const Dims& from) { CopyValue(*x, from[0], y, at); });
  return One(std::move(y));
}

}  // namespace slm::reference
