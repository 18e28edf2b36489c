// Sums in other operators.
#include <algorithm>

#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

constexpr int64_t kMostSummed = 65536;

}  // namespace

std::optional<Dims> ReducedAxes(const Site& s) {
  const auto rank = s.Rank(0);
  Dims axes;
  if (!rank) return std::nullopt;
  if (const onnx::Attribute* a = s.node().Find("axes")) axes = a->ints;
  else if (s.Given(1) && !s.Ints(1, axes)) return std::nullopt;
  if (axes.empty() && s.node().Int("noop_with_empty_axes", 0) != 0) return std::nullopt;
  if (axes.empty())
    for (int64_t k = 0; k < *rank; ++k) axes.push_back(k);
  for (int64_t& a : axes) {
    const auto from_front = FromFront(a, *rank);
    if (!from_front) return std::nullopt;
    a = *from_front;
  }
  return axes;
}

std::optional<Piece> SquareSumApart(const Site& s) {
  const auto axes = ReducedAxes(s);
  if (!axes || !IsFloating(s.Type(0))) return std::nullopt;
  Builder b(s);
  const std::string& x = s.node().inputs[0];
  b.To(0, "ReduceSum", {b.Op("Mul", {x, x}), b.Ints(*axes)}, {IntAttribute("keepdims", s.node().Int("keepdims", 1))});
  return b.Take();
}

// Targets that add whole numbers and do not reduce them: masks are counted so.
std::optional<Piece> WholeSumByHalves(const Site& s) {
  const auto axes = ReducedAxes(s);
  const auto shape = s.Shape(0);
  if (!axes || axes->size() != 1 || !shape || (s.Type(0) != ElementType::kInt32 && s.Type(0) != ElementType::kInt64)) return std::nullopt;
  const int64_t axis = (*axes)[0];
  int64_t left = (*shape)[static_cast<size_t>(axis)];
  if (left < 1 || left > kMostSummed) return std::nullopt;
  Builder b(s);
  std::string x = s.node().inputs[0];
  Names odd;  // lines without a partner, one each
  for (; left > 1; left /= 2) {
    if (left % 2 != 0) odd.push_back(b.Slice(x, axis, left - 1, left));
    const std::string first = b.Slice(x, axis, 0, left / 2), second = b.Slice(x, axis, left / 2, left / 2 * 2);
    x = b.Op("Add", {first, second});
  }
  for (const std::string& line : odd) x = b.Op("Add", {x, line});
  if (s.node().Int("keepdims", 1) == 0) {
    b.To(0, "Squeeze", {x, b.Ints({axis})});
  } else if (x != s.node().inputs[0]) {
    b.CallLast(s.node().outputs[0]);
  } else {
    b.To(0, "Identity", {x});
  }
  return b.Take();
}

}  // namespace slm::legalize
