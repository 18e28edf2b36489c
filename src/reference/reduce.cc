// Operators that fold values along dimensions: Reduce*, ArgMax, ArgMin, CumSum, TopK.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/call.h"

namespace slm::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsWide(ElementType t) { return IsInteger(t) && onnx::Info(t).bits == 64; }

struct Reduced {
  std::vector<int64_t> place;  // of each value of x in y
  Dims dims;                   // of y
  int64_t n = 0;               // values of x in one of y
};

// Axes are the second input since operator set 13 or 18, before that an attribute.
Result<Reduced> Layout(const Call& c, const Array& x) {
  std::vector<int64_t> axes = c.IntList("axes");
  if (c.Optional(1)) {
    SLM_ASSIGN_OR_RETURN(axes, c.Ints(1));
  }
  SLM_RETURN_IF_ERROR(c.Count(x.size(), 1));
  const size_t rank = x.dims.size();
  std::vector<uint8_t> folded(rank, axes.empty() && c.Int("noop_with_empty_axes", 0) == 0 ? 1 : 0);
  for (const int64_t a : axes) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(a, rank));
    folded[static_cast<size_t>(axis)] = 1;
  }
  Dims kept = x.dims;
  Reduced r;
  for (size_t k = 0; k < rank; ++k)
    if (folded[k]) kept[k] = 1;
  const Dims strides = BroadcastStrides(kept, x.dims);
  r.place.resize(static_cast<size_t>(x.size()));
  Walk(x.dims, {strides}, [&](int64_t at, const Dims& to) { r.place[static_cast<size_t>(at)] = to[0]; });
  for (size_t k = 0; k < rank; ++k)
    if (!folded[k]) r.dims.push_back(x.dims[k]);
    else if (c.Int("keepdims", 1) != 0) r.dims.push_back(1);
  SLM_ASSIGN_OR_RETURN(const int64_t size, Count(r.dims));
  r.n = size > 0 ? x.size() / size : 0;
  return r;
}

// y = last(fold of each(value) from `start`), in double.
template <class Each, class Fold, class Last>
Result<Arrays> Reduce(const Call& c, Accept accept, double start, Each each, Fold fold, Last last) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, accept));
  if (IsWide(x->type))
    for (const int64_t v : x->i)
      if (v > (int64_t{1} << 52) || v < -(int64_t{1} << 52)) return Refuse("64-bit integers beyond 2^52");
  SLM_ASSIGN_OR_RETURN(const Reduced r, Layout(c, *x));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, r.dims));
  std::vector<double> sums(static_cast<size_t>(y.size()), start);
  for (int64_t k = 0; k < x->size(); ++k) {
    double& sum = sums[static_cast<size_t>(r.place[static_cast<size_t>(k)])];
    sum = fold(sum, each(Number(*x, k)));
  }
  for (int64_t k = 0; k < y.size(); ++k) Set(y, k, last(sums[static_cast<size_t>(k)], static_cast<double>(r.n)));
  return One(std::move(y));
}

// The same for 64-bit integers, which doubles do not hold: folded as integers, modulo 2^64.
template <class Fold>
Result<Arrays> ReduceWide(const Call& c, int64_t start, Fold fold) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Reduced r, Layout(c, *x));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, r.dims));
  std::fill(y.i.begin(), y.i.end(), start);
  for (size_t k = 0; k < x->i.size(); ++k) {
    int64_t& value = y.i[static_cast<size_t>(r.place[k])];
    value = fold(value, x->i[k]);
  }
  return One(std::move(y));
}
bool OfWide(const Call& c) { return c.Optional(0) && IsWide(c.Optional(0)->type); }
int64_t WidePlus(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t WideTimes(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

// Start of a fold to the largest (sign < 0) or smallest value.
int64_t WideBound(ElementType t, int sign) {
  if (t == ElementType::kUint64) return sign < 0 ? 0 : -1;  // -1: all bits set
  return sign < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

double Plus(double a, double b) { return a + b; }
double Same(double v) { return v; }
double Square(double v) { return v * v; }
double AsIs(double sum, double) { return sum; }

// What an empty set has: the end of the type's range.
double Bound(const Call& c, int sign) {
  const ElementType t = c.Optional(0) ? c.Optional(0)->type : ElementType::kFloat;
  if (IsBool(t)) return sign > 0 ? 1 : 0;
  if (IsFloat(t) || onnx::Info(t).bits == 64) return sign * kInfinity;
  return static_cast<double>(sign > 0 ? HighestOf(t) : LowestOf(t));
}

enum class Best : uint8_t { kLargest, kSmallest };

Result<Arrays> ArgBest(const Call& c, Best best) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 0), x->dims.size()));
  const Lanes l = LanesOf(x->dims, axis);
  if (l.n == 0) return Wrong("an axis without values");
  SLM_RETURN_IF_ERROR(c.Count(x->size(), 1));
  Dims dims = x->dims;
  if (c.Int("keepdims", 1) != 0) dims[static_cast<size_t>(axis)] = 1;
  else dims.erase(dims.begin() + axis);
  const bool last = c.Int("select_last_index", 0) != 0;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kInt64, dims));
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.inner; ++i) {
      int64_t found = 0;
      for (int64_t k = 1; k < l.n; ++k) {
        const int64_t v = (o * l.n + k) * l.inner + i, w = (o * l.n + found) * l.inner + i;
        const bool more = Less(*x, w, v), less = Less(*x, v, w);
        if (best == Best::kLargest ? more : less) found = k;
        else if (last && !more && !less) found = k;
      }
      y.i[static_cast<size_t>(o * l.inner + i)] = found;
    }
  return One(std::move(y));
}

}  // namespace

Result<Arrays> ReduceSum(const Call& c) { return OfWide(c) ? ReduceWide(c, 0, WidePlus) : Reduce(c, Accept::kNumber, 0, Same, Plus, AsIs); }
Result<Arrays> ReduceMean(const Call& c) {
  return Reduce(c, Accept::kNumber, 0, Same, Plus, [](double sum, double n) { return sum / n; });
}
Result<Arrays> ReduceProd(const Call& c) {
  if (OfWide(c)) return ReduceWide(c, 1, WideTimes);
  return Reduce(
      c, Accept::kNumber, 1, Same, [](double a, double b) { return a * b; }, AsIs);
}
Result<Arrays> ReduceMax(const Call& c) {
  if (OfWide(c)) {
    const ElementType t = c.Optional(0)->type;
    return ReduceWide(c, WideBound(t, -1), [t](int64_t a, int64_t b) { return Less64(t, a, b) ? b : a; });
  }
  return Reduce(
      c, Accept::kOrdered, Bound(c, -1), Same, [](double a, double b) { return std::isnan(a) || a > b ? a : b; }, AsIs);
}
Result<Arrays> ReduceMin(const Call& c) {
  if (OfWide(c)) {
    const ElementType t = c.Optional(0)->type;
    return ReduceWide(c, WideBound(t, 1), [t](int64_t a, int64_t b) { return Less64(t, b, a) ? b : a; });
  }
  return Reduce(
      c, Accept::kOrdered, Bound(c, 1), Same, [](double a, double b) { return std::isnan(a) || a < b ? a : b; }, AsIs);
}
Result<Arrays> ReduceL1(const Call& c) {
  return Reduce(
      c, Accept::kNumber, 0, [](double v) { return std::abs(v); }, Plus, AsIs);
}
Result<Arrays> ReduceL2(const Call& c) {
  return Reduce(c, Accept::kNumber, 0, Square, Plus, [](double sum, double) { return std::sqrt(sum); });
}
Result<Arrays> ReduceSumSquare(const Call& c) { return Reduce(c, Accept::kNumber, 0, Square, Plus, AsIs); }
Result<Arrays> ReduceLogSum(const Call& c) {
  return Reduce(c, Accept::kNumber, 0, Same, Plus, [](double sum, double) { return std::log(sum); });
}
Result<Arrays> ReduceLogSumExp(const Call& c) {
  // Kept as a logarithm, so that large values do not overflow.
  const auto join = [](double a, double b) {
    const double top = std::max(a, b);
    return std::isinf(top) ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
  };
  return Reduce(c, Accept::kNumber, -kInfinity, Same, join, AsIs);
}

Result<Arrays> ArgMax(const Call& c) { return ArgBest(c, Best::kLargest); }
Result<Arrays> ArgMin(const Call& c) { return ArgBest(c, Best::kSmallest); }

namespace {

enum class Running : uint8_t { kSum, kProduct };

Result<Arrays> Cumulate(const Call& c, Running running) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const auto given, c.Ints(1));
  if (given.size() != 1) return Wrong("an axis is needed");
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(given[0], x->dims.size()));
  const Lanes l = LanesOf(x->dims, axis);
  const bool exclusive = c.Int("exclusive", 0) != 0, reverse = c.Int("reverse", 0) != 0;
  const bool wide = IsWide(x->type);
  Array y = *x;
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.inner; ++i) {
      const bool product = running == Running::kProduct;
      double sum = product ? 1 : 0;
      int64_t wide_sum = product ? 1 : 0;
      for (int64_t step = 0; step < l.n; ++step) {
        const int64_t k = reverse ? l.n - 1 - step : step, at = (o * l.n + k) * l.inner + i;
        if (wide) {
          const int64_t before = wide_sum;
          wide_sum = (product ? WideTimes : WidePlus)(wide_sum, x->i[static_cast<size_t>(at)]);
          y.i[static_cast<size_t>(at)] = exclusive ? before : wide_sum;
          continue;
        }
        if (exclusive) Set(y, at, sum);
        sum = product ? sum * Number(*x, at) : sum + Number(*x, at);
        if (!exclusive) Set(y, at, sum);
      }
    }
  return One(std::move(y));
}

}  // namespace

Result<Arrays> CumSum(const Call& c) { return Cumulate(c, Running::kSum); }
Result<Arrays> CumProd(const Call& c) { return Cumulate(c, Running::kProduct); }

Result<Arrays> TopK(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  std::vector<int64_t> given{c.Int("k", -1)};  // an attribute before operator set 10
  if (!c.Has("k")) {
    SLM_ASSIGN_OR_RETURN(given, c.Ints(1));
  }
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -1), x->dims.size()));
  const Lanes l = LanesOf(x->dims, axis);
  if (given.size() != 1 || given[0] < 0 || given[0] > l.n) return Wrong("k is not between 0 and the size of the axis");
  const int64_t top = given[0];
  SLM_RETURN_IF_ERROR(c.Count(x->size(), std::bit_width(static_cast<uint64_t>(l.n))));  // a sort
  const bool largest = c.Int("largest", 1) != 0;
  Dims dims = x->dims;
  dims[static_cast<size_t>(axis)] = top;
  SLM_ASSIGN_OR_RETURN(Array values, Zeros(x->type, dims));
  SLM_ASSIGN_OR_RETURN(Array indices, Zeros(ElementType::kInt64, dims));
  std::vector<int64_t> order(static_cast<size_t>(l.n));
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.inner; ++i) {
      const auto at = [&](int64_t k) { return (o * l.n + k) * l.inner + i; };
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {  // the lower index first among equals
        return largest ? Less(*x, at(q), at(p)) : Less(*x, at(p), at(q));
      });
      for (int64_t k = 0; k < top; ++k) {
        const int64_t to = (o * top + k) * l.inner + i;
        CopyValue(*x, at(order[static_cast<size_t>(k)]), values, to);
        indices.i[static_cast<size_t>(to)] = order[static_cast<size_t>(k)];
      }
    }
  return Arrays{std::move(values), std::move(indices)};
}

}  // namespace slm::reference
