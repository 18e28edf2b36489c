// Compare: is an array the expected one? See reference.h.
#include <cmath>

#include "reference/array.h"

namespace slm::reference {
namespace {

std::string IndexText(const Dims& dims, int64_t flat) {
  Dims index(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    index[axis] = flat % dims[axis];
    flat /= dims[axis];
  }
  return onnx::ShapeText(index);
}

}  // namespace

Difference Compare(const Array& got, const Array& want, const Tolerance& tolerance) {
  Difference d;
  if (got.type != want.type) return {true, fmt::format("type {}, expected {}", onnx::Info(got.type).name, onnx::Info(want.type).name), 0};
  if (got.dims != want.dims) return {true, fmt::format("shape {}, expected {}", onnx::ShapeText(got.dims), onnx::ShapeText(want.dims)), 0};
  if (IsString(got.type)) return {got.s != want.s, "strings differ", 0};
  for (int64_t k = 0; k < got.size(); ++k) {
    const double g = Number(got, k), w = Number(want, k);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    const double off = std::abs(g - w);
    if (std::isfinite(off)) d.largest = std::max(d.largest, off);
    if (!d.differs && !(off <= tolerance.absolute + tolerance.relative * std::abs(w) && std::isfinite(w))) {
      d.differs = true;
      d.where = fmt::format("at {}: {}, expected {}", IndexText(got.dims, k), g, w);
    }
  }
  return d;
}

}  // namespace slm::reference
