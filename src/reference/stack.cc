// See stack.h.
#include "reference/stack.h"

namespace slm::reference {

Result<Array> SliceAt(const Array& x, int64_t axis, int64_t at) {
  SLM_ASSIGN_OR_RETURN(axis, Axis(axis, x.dims.size()));
  const Lanes l = LanesOf(x.dims, axis);
  if (at < 0 || at >= l.n) return Wrong("a slice that is not there");
  Dims dims = x.dims;
  dims.erase(dims.begin() + axis);
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, std::move(dims)));
  for (int64_t k = 0; k < y.size(); ++k) CopyValue(x, (k / l.inner * l.n + at) * l.inner + k % l.inner, y, k);
  return y;
}

Result<Array> Stack(const Arrays& parts, int64_t axis) {
  if (parts.empty()) return Wrong("no slice to stack");
  const Array& first = parts[0];
  for (const Array& part : parts)
    if (part.type != first.type || part.dims != first.dims) return Wrong("slices of different shapes or types");
  SLM_ASSIGN_OR_RETURN(axis, Axis(axis, first.dims.size() + 1));
  Dims dims = first.dims;
  const int64_t n = static_cast<int64_t>(parts.size());
  dims.insert(dims.begin() + axis, n);
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(first.type, std::move(dims)));
  const Lanes l = LanesOf(y.dims, axis);
  for (int64_t part = 0; part < n; ++part)
    for (int64_t k = 0; k < first.size(); ++k)
      CopyValue(parts[static_cast<size_t>(part)], k, y, (k / l.inner * n + part) * l.inner + k % l.inner);
  return y;
}

Result<Array> StackOfNone(const onnx::ValueInfo& slice) {
  Dims dims{0};
  if (!slice.type.has_shape || !onnx::IsElementType(static_cast<int64_t>(slice.type.element)))
    return Refuse("no round at all, and an output whose type or shape is open");
  for (const onnx::Dim& d : slice.type.shape) {
    if (d.value < 0) return Refuse("no round at all, and an output whose shape is open");
    dims.push_back(d.value);
  }
  return Zeros(slice.type.element, std::move(dims));
}

}  // namespace slm::reference
