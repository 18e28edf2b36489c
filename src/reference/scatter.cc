// Operators that write by index: ScatterElements, ScatterND, TensorScatter.
#include <algorithm>

#include "reference/call.h"

namespace slm::reference {
namespace {

enum class Join : uint8_t { kReplace, kAdd, kMul, kMax, kMin };

Result<Join> JoinOf(const Call& c) {
  const std::string name = c.Text("reduction", "none");
  if (name == "none") return Join::kReplace;
  if (name == "add") return Join::kAdd;
  if (name == "mul") return Join::kMul;
  if (name == "max") return Join::kMax;
  if (name == "min") return Join::kMin;
  return Refuse("reduction '" + name + "'");
}

void Write(Join join, const Array& update, int64_t from, Array& y, int64_t at) {
  if (join == Join::kReplace) return CopyValue(update, from, y, at);
  const double a = Number(y, at), b = Number(update, from);
  switch (join) {
    case Join::kReplace: break;
    case Join::kAdd: Set(y, at, a + b); break;
    case Join::kMul: Set(y, at, a * b); break;
    case Join::kMax: Set(y, at, std::max(a, b)); break;
    case Join::kMin: Set(y, at, std::min(a, b)); break;
  }
}

}  // namespace

Result<Arrays> ScatterElements(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(1, Accept::kIndex));
  SLM_ASSIGN_OR_RETURN(const Array* updates, c.In(2));
  SLM_ASSIGN_OR_RETURN(const Join join, JoinOf(c));
  const size_t rank = x->dims.size();
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 0), rank));
  if (indices->dims != updates->dims || indices->dims.size() != rank || updates->type != x->type ||
      (IsString(x->type) && join != Join::kReplace))
    return Wrong("indices or updates do not fit");
  for (size_t d = 0; d < rank; ++d)
    if (static_cast<int64_t>(d) != axis && indices->dims[d] > x->dims[d]) return Wrong("more indices than values");
  Dims strides = Strides(x->dims);
  const int64_t step = strides[static_cast<size_t>(axis)], n = x->dims[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  for (const int64_t v : indices->i)
    if (v < -n || v >= n) return Wrong(fmt::format("index {} of {} values", v, n));
  Array y = *x;
  Walk(indices->dims, {strides}, [&](int64_t at, const Dims& to) {
    const int64_t index = indices->i[static_cast<size_t>(at)];
    Write(join, *updates, at, y, to[0] + (index < 0 ? index + n : index) * step);
  });
  return One(std::move(y));
}

// The name until operator set 11.
Result<Arrays> Scatter(const Call& c) { return ScatterElements(c); }

Result<Arrays> ScatterNd(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(1, Accept::kIndex));
  SLM_ASSIGN_OR_RETURN(const Array* updates, c.In(2));
  SLM_ASSIGN_OR_RETURN(const Join join, JoinOf(c));
  if (indices->dims.empty() || indices->dims.back() > static_cast<int64_t>(x->dims.size()))
    return Wrong("indices that are longer than the rank");
  const size_t depth = static_cast<size_t>(indices->dims.back());
  Dims want(indices->dims.begin(), indices->dims.end() - 1);
  want.insert(want.end(), x->dims.begin() + static_cast<std::ptrdiff_t>(depth), x->dims.end());
  if (updates->dims != want || updates->type != x->type || (IsString(x->type) && join != Join::kReplace))
    return Wrong("updates do not fit");
  const Dims own = Strides(x->dims);
  int64_t inner = 1;
  for (size_t d = depth; d < x->dims.size(); ++d) inner *= x->dims[d];
  Array y = *x;
  const int64_t rows = inner > 0 ? updates->size() / inner : 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t to = 0;
    for (size_t d = 0; d < depth; ++d) {
      const int64_t index = indices->i[static_cast<size_t>(row) * depth + d], n = x->dims[d];
      if (index < -n || index >= n) return Wrong(fmt::format("index {} of {} values", index, n));
      to += (index < 0 ? index + n : index) * own[d];
    }
    for (int64_t i = 0; i < inner; ++i) Write(join, *updates, row * inner + i, y, to + i);
  }
  return One(std::move(y));
}

// A cache [B, …, S, …] with new values written from a place of the axis on, one place a sequence of the batch.
Result<Arrays> TensorScatter(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* past, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* update, c.In(1));
  const size_t rank = past->dims.size();
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -2), rank));
  if (axis == 0) return Wrong("the axis is that of the batch");
  SLM_ASSIGN_OR_RETURN(const auto places, c.IntsOr(2, std::vector<int64_t>(static_cast<size_t>(past->dims[0]), 0)));
  const std::string mode = c.Text("mode", "linear");
  if (mode != "linear" && mode != "circular") return Refuse("mode '" + mode + "'");
  Dims want = update->dims;
  if (want.size() != rank || update->type != past->type || static_cast<int64_t>(places.size()) != past->dims[0])
    return Wrong("the update does not fit");
  const Lanes cache = LanesOf(past->dims, axis), lines = LanesOf(want, axis);
  want[static_cast<size_t>(axis)] = cache.n;
  if (want != past->dims || lines.n > cache.n) return Wrong("the update does not fit");
  Array y = *past;
  for (int64_t k = 0; k < update->size(); ++k) {
    const int64_t outer = k / lines.inner / lines.n, line = k / lines.inner % lines.n;
    const int64_t place = places[static_cast<size_t>(outer / (cache.outer / past->dims[0]))];
    if (place < 0 || place > kMaxValues || (mode == "linear" && place + line >= cache.n))
      return Wrong(fmt::format("place {} of {}", place, cache.n));
    CopyValue(*update, k, y, (outer * cache.n + (place + line) % cache.n) * cache.inner + k % lines.inner);
  }
  return One(std::move(y));
}

}  // namespace slm::reference
