// Operators that read by index: Gather, GatherElements, GatherND, NonZero; OneHot.
#include "reference/call.h"

namespace slm::reference {
namespace {

// -n <= index < n, made non-negative.
Result<int64_t> Index(int64_t index, int64_t n) {
  if (index < -n || index >= n) return Wrong(fmt::format("index {} of {} values", index, n));
  return index < 0 ? index + n : index;
}

}  // namespace

Result<Arrays> Gather(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(1, Accept::kIndex));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 0), x->dims.size()));
  const Lanes l = LanesOf(x->dims, axis);
  Dims dims(x->dims.begin(), x->dims.begin() + axis);
  dims.insert(dims.end(), indices->dims.begin(), indices->dims.end());
  dims.insert(dims.end(), x->dims.begin() + axis + 1, x->dims.end());
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  const int64_t n = indices->size();
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t k = 0; k < n; ++k) {
      SLM_ASSIGN_OR_RETURN(const int64_t at, Index(indices->i[static_cast<size_t>(k)], l.n));
      for (int64_t i = 0; i < l.inner; ++i) CopyValue(*x, (o * l.n + at) * l.inner + i, y, (o * n + k) * l.inner + i);
    }
  return One(std::move(y));
}

Result<Arrays> GatherElements(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(1, Accept::kIndex));
  const size_t rank = x->dims.size();
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 0), rank));
  if (indices->dims.size() != rank) return Wrong("indices of another rank");
  for (size_t d = 0; d < rank; ++d)
    if (static_cast<int64_t>(d) != axis && indices->dims[d] > x->dims[d]) return Wrong("more indices than values");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, indices->dims));
  Dims strides = Strides(x->dims);
  const int64_t step = strides[static_cast<size_t>(axis)], n = x->dims[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  Status status;
  Walk(indices->dims, {strides}, [&](int64_t at, const Dims& from) {
    const auto index = Index(indices->i[static_cast<size_t>(at)], n);
    if (!index.ok()) status = index.error();
    else CopyValue(*x, from[0] + index.value() * step, y, at);
  });
  SLM_RETURN_IF_ERROR(status);
  return One(std::move(y));
}

Result<Arrays> GatherNd(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(1, Accept::kIndex));
  const int64_t batch = c.Int("batch_dims", 0), rank = static_cast<int64_t>(x->dims.size());
  if (indices->dims.empty() || batch < 0 || batch >= static_cast<int64_t>(indices->dims.size()) || batch > rank) return Wrong("batch_dims");
  const int64_t depth = indices->dims.back();
  if (depth > rank - batch) return Wrong("indices that are longer than the rank");
  Dims dims(indices->dims.begin(), indices->dims.end() - 1);
  for (int64_t d = 0; d < batch; ++d)
    if (x->dims[static_cast<size_t>(d)] != dims[static_cast<size_t>(d)]) return Wrong("batch dimensions differ");
  dims.insert(dims.end(), x->dims.begin() + batch + depth, x->dims.end());
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  const Dims own = Strides(x->dims);
  int64_t inner = 1, per_batch = 1;
  for (int64_t d = batch + depth; d < rank; ++d) inner *= x->dims[static_cast<size_t>(d)];
  for (size_t d = static_cast<size_t>(batch); d + 1 < indices->dims.size(); ++d) per_batch *= indices->dims[d];
  const int64_t rows = inner > 0 ? y.size() / inner : 0;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t from = batch > 0 ? row / per_batch * own[static_cast<size_t>(batch) - 1] : 0;
    for (int64_t d = 0; d < depth; ++d) {
      const size_t axis = static_cast<size_t>(batch + d);
      SLM_ASSIGN_OR_RETURN(const int64_t at, Index(indices->i[static_cast<size_t>(row * depth + d)], x->dims[axis]));
      from += at * own[axis];
    }
    for (int64_t i = 0; i < inner; ++i) CopyValue(*x, from + i, y, row * inner + i);
  }
  return One(std::move(y));
}

Result<Arrays> OneHot(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Array* depth, c.In(1, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Array* values, c.In(2));
  if (depth->size() != 1 || values->size() != 2) return Wrong("one depth and two values are needed");
  const double asked = Number(*depth, 0);
  if (!(asked >= 0 && asked <= static_cast<double>(kMaxValues))) return Wrong("the depth");
  const int64_t n = static_cast<int64_t>(asked);
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -1), indices->dims.size() + 1));
  Dims dims = indices->dims;
  dims.insert(dims.begin() + axis, n);
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(values->type, dims));
  const Lanes l = LanesOf(dims, axis);
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t place = k / l.inner % l.n, from = k / l.inner / l.n * l.inner + k % l.inner;
    const double index = Number(*indices, from);
    CopyValue(*values, index == static_cast<double>(place) || index + static_cast<double>(n) == static_cast<double>(place) ? 1 : 0, y, k);
  }
  return One(std::move(y));
}

Result<Arrays> NonZero(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kOrdered));
  SLM_RETURN_IF_ERROR(c.Count(x->size(), 1));
  std::vector<int64_t> found;
  for (int64_t k = 0; k < x->size(); ++k)
    if (Number(*x, k) != 0) found.push_back(k);
  const size_t rank = x->dims.size();
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kInt64, {static_cast<int64_t>(rank), static_cast<int64_t>(found.size())}));
  const Dims own = Strides(x->dims);
  for (size_t d = 0; d < rank; ++d)
    for (size_t k = 0; k < found.size(); ++k) y.i[d * found.size() + k] = found[k] / own[d] % x->dims[d];
  return One(std::move(y));
}

}  // namespace slm::reference
