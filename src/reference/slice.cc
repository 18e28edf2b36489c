// Operators that cut arrays and put them together: Concat, Split, Slice, Pad, Trilu.
#include <algorithm>
#include <limits>

#include "reference/call.h"

namespace slm::reference {
namespace {

// [begin, begin + n) along an axis.
Result<Array> Part(const Array& x, int64_t axis, int64_t begin, int64_t n) {
  Dims dims = x.dims;
  dims[static_cast<size_t>(axis)] = n;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, dims));
  const Lanes l = LanesOf(x.dims, axis);
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t inner = k % l.inner, line = k / l.inner % n, outer = k / l.inner / n;
    CopyValue(x, (outer * l.n + begin + line) * l.inner + inner, y, k);
  }
  return y;
}

struct Cut {
  int64_t begin = 0, step = 1, n = 0;
};

// The places of one axis that a slice takes; numpy's rules.
Cut CutOf(int64_t size, int64_t start, int64_t end, int64_t step) {
  const auto place = [&](int64_t v) { return v < 0 ? std::max(v, -size - 1) + size : v; };
  Cut cut{0, step, 0};
  if (step > 0) {
    cut.begin = std::clamp<int64_t>(place(start), 0, size);
    const int64_t stop = std::clamp<int64_t>(place(end), 0, size);
    cut.n = stop > cut.begin ? (stop - cut.begin - 1) / step + 1 : 0;
  } else {
    cut.begin = std::clamp<int64_t>(place(start), -1, size - 1);
    const int64_t stop = std::clamp<int64_t>(place(end), -1, size - 1);
    cut.n = cut.begin > stop ? (cut.begin - stop - 1) / -step + 1 : 0;
  }
  return cut;
}

// Where a padded place takes its value; -1: from nowhere.
Result<int64_t> Source(int64_t at, int64_t size, const std::string& mode) {
  if (at >= 0 && at < size) return at;
  if (mode == "constant") return -1;
  if (size == 0) return Wrong("an empty dimension cannot be continued");
  if (mode == "edge") return at < 0 ? 0 : size - 1;
  if (mode == "wrap") return (at % size + size) % size;
  if (mode != "reflect") return Refuse("mode '" + mode + "'");
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1), k = (at % period + period) % period;
  return k < size ? k : period - k;
}

}  // namespace

Result<Arrays> Concat(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* first, c.In(0));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 0), first->dims.size()));
  Dims dims = first->dims;
  dims[static_cast<size_t>(axis)] = 0;
  for (size_t k = 0; k < c.n_inputs(); ++k) {
    SLM_ASSIGN_OR_RETURN(const Array* x, c.In(k));
    Dims same = x->dims;
    if (same.size() != dims.size() || x->type != first->type) return Wrong("inputs of different types or ranks");
    same[static_cast<size_t>(axis)] = dims[static_cast<size_t>(axis)];
    if (same != dims) return Wrong("shapes differ in another dimension than the axis");
    dims[static_cast<size_t>(axis)] += x->dims[static_cast<size_t>(axis)];
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(first->type, dims));
  const int64_t n = dims[static_cast<size_t>(axis)];
  int64_t begin = 0;
  for (size_t k = 0; k < c.n_inputs(); ++k) {
    const Array& x = *c.Optional(k);
    const Lanes l = LanesOf(x.dims, axis);
    for (int64_t v = 0; v < x.size(); ++v) {
      const int64_t inner = v % l.inner, line = v / l.inner % l.n, outer = v / l.inner / l.n;
      CopyValue(x, v, y, (outer * n + begin + line) * l.inner + inner);
    }
    begin += l.n;
  }
  return One(std::move(y));
}

Result<Arrays> Split(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 0), x->dims.size()));
  std::vector<int64_t> sizes = c.IntList("split");
  if (c.Optional(1)) {
    SLM_ASSIGN_OR_RETURN(sizes, c.Ints(1));
  }
  const int64_t n = x->dims[static_cast<size_t>(axis)];
  if (sizes.empty()) {  // equal parts, the last one may be smaller
    const int64_t parts = c.Int("num_outputs", static_cast<int64_t>(c.n_outputs()));
    if (parts < 1 || parts > static_cast<int64_t>(c.n_outputs())) return Wrong("as many outputs as parts are needed");
    const int64_t size = (n + parts - 1) / parts;
    for (int64_t k = 0; k < parts; ++k) sizes.push_back(std::max<int64_t>(0, std::min(size, n - k * size)));
  }
  Arrays out;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > n - begin) return Wrong("parts that are longer than the axis");
    SLM_ASSIGN_OR_RETURN(Array part, Part(*x, axis, begin, size));
    out.push_back(std::move(part));
    begin += size;
  }
  if (begin != n) return Wrong("parts that are shorter than the axis");
  return out;
}

// data, starts, ends, axes, steps
Result<Arrays> Slice(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  std::vector<int64_t> starts = c.IntList("starts"), ends = c.IntList("ends"), all = c.IntList("axes");  // before operator set 10
  if (!c.Has("starts")) {
    SLM_ASSIGN_OR_RETURN(starts, c.Ints(1));
    SLM_ASSIGN_OR_RETURN(ends, c.Ints(2));
  }
  for (size_t k = 0; k < starts.size() && !c.Has("axes"); ++k) all.push_back(static_cast<int64_t>(k));
  SLM_ASSIGN_OR_RETURN(const auto axes, c.IntsOr(3, all));
  SLM_ASSIGN_OR_RETURN(const auto steps, c.IntsOr(4, std::vector<int64_t>(starts.size(), 1)));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return Wrong("lists of different lengths");
  const size_t rank = x->dims.size();
  std::vector<Cut> cuts;
  for (const int64_t d : x->dims) cuts.push_back({0, 1, d});
  for (size_t k = 0; k < axes.size(); ++k) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[k], rank));
    if (steps[k] == 0 || steps[k] == std::numeric_limits<int64_t>::min()) return Wrong("a step of zero or beyond the range");
    cuts[static_cast<size_t>(axis)] = CutOf(x->dims[static_cast<size_t>(axis)], starts[k], ends[k], steps[k]);
  }
  Dims dims, strides;
  const Dims own = Strides(x->dims);
  int64_t begin = 0;
  for (size_t k = 0; k < rank; ++k) {
    dims.push_back(cuts[k].n);
    strides.push_back(cuts[k].n > 1 ? cuts[k].step * own[k] : 0);
    begin += cuts[k].n > 0 ? cuts[k].begin * own[k] : 0;
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  Walk(dims, {strides}, [&](int64_t at, const Dims& from) { CopyValue(*x, begin + from[0], y, at); });
  return One(std::move(y));
}

// data, pads, value, axes
Result<Arrays> Pad(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  std::vector<int64_t> pads = c.IntList("pads");  // before operator set 11, as the value
  if (!c.Has("pads")) {
    SLM_ASSIGN_OR_RETURN(pads, c.Ints(1));
  }
  const size_t rank = x->dims.size();
  std::vector<int64_t> all;
  for (size_t k = 0; k < rank; ++k) all.push_back(static_cast<int64_t>(k));
  SLM_ASSIGN_OR_RETURN(const auto axes, c.IntsOr(3, all));
  if (pads.size() != 2 * axes.size()) return Wrong("two pads an axis are needed");
  const Array* value = c.Optional(2);
  if (c.Has("value") && IsString(x->type)) return Wrong("a value that is not one of the input's type");
  if (value && (value->type != x->type || value->size() != 1)) return Wrong("the value is not one of the input's type");
  const std::string mode = c.Text("mode", "constant");
  std::vector<int64_t> before(rank);
  Dims dims = x->dims;
  for (size_t k = 0; k < axes.size(); ++k) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(axes[k], rank));
    const int64_t front = pads[k], back = pads[k + axes.size()];
    if (front > kMaxValues || back > kMaxValues || front < -kMaxValues || back < -kMaxValues) return Wrong("pads that are too large");
    before[static_cast<size_t>(axis)] = front;
    dims[static_cast<size_t>(axis)] += front + back;
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  const Dims own = Strides(x->dims), out = Strides(dims);
  for (int64_t k = 0; k < y.size(); ++k) {
    int64_t from = 0;
    for (size_t d = 0; d < rank && from >= 0; ++d) {
      SLM_ASSIGN_OR_RETURN(const int64_t place, Source(k / out[d] % dims[d] - before[d], x->dims[d], mode));
      from = place < 0 ? -1 : from + place * own[d];
    }
    if (from >= 0) CopyValue(*x, from, y, k);
    else if (value) CopyValue(*value, 0, y, k);
    else if (c.Has("value")) Set(y, k, c.Float("value", 0));
  }
  return One(std::move(y));
}

Result<Arrays> Trilu(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const auto given, c.IntsOr(1, {0}));
  if (x->dims.size() < 2 || given.size() != 1) return Wrong("not a matrix and one diagonal");
  const bool upper = c.Int("upper", 1) != 0;
  const int64_t columns = x->dims.back(), rows = x->dims[x->dims.size() - 2];
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, x->dims));
  const int64_t diagonal = std::clamp(given[0], -rows, columns);
  for (int64_t k = 0; k < x->size(); ++k) {
    const int64_t off = k % columns - k / columns % rows;
    if (upper ? off >= diagonal : off <= diagonal) CopyValue(*x, k, y, k);
  }
  return One(std::move(y));
}

}  // namespace slm::reference
