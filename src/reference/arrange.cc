// Operators that choose or move values by a rule: Compress, ReverseSequence, EyeLike, DepthToSpace, SpaceToDepth, Unique; Dropout, which at
// inference moves nothing.
#include <algorithm>
#include <numeric>

#include "reference/call.h"

namespace slm::reference {
namespace {

// a < b of two values of any type.
bool Before(const Array& x, int64_t a, int64_t b) {
  if (IsString(x.type)) return x.s[static_cast<size_t>(a)] < x.s[static_cast<size_t>(b)];
  return Less(x, a, b);
}

// A picture as six dimensions, permuted, as four again.
Result<Arrays> Blocks(const Call& c, const Dims& split, const Dims& perm, const Dims& joined) {
  const Array& x = *c.Optional(0);
  const Dims own = Strides(split);
  Dims dims, steps;
  for (const int64_t p : perm) {
    dims.push_back(split[static_cast<size_t>(p)]);
    steps.push_back(own[static_cast<size_t>(p)]);
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x.type, dims));
  Walk(dims, {steps}, [&](int64_t at, const Dims& from) { CopyValue(x, from[0], y, at); });
  y.dims = joined;
  return One(std::move(y));
}

Result<const Array*> Picture(const Call& c, int64_t block) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  if (x->dims.size() != 4 || block < 1 || block > 65536) return Wrong("not four dimensions and a block size");
  return x;
}

// Unique over all values, or over the slices of an axis.
struct Slices {
  Lanes lanes;
  int64_t Value(int64_t slice, int64_t k) const { return (k / lanes.inner * lanes.n + slice) * lanes.inner + k % lanes.inner; }
};

}  // namespace

Result<Arrays> Dropout(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  const Array *ratio = c.Optional(1), *training = c.Optional(2);
  const bool trains =
      training && training->size() == 1 && Number(*training, 0) != 0 && (!ratio || ratio->size() != 1 || Number(*ratio, 0) != 0);
  if (trains) return Refuse("training_mode: the values are random");
  SLM_ASSIGN_OR_RETURN(Array mask, Zeros(ElementType::kBool, x->dims));
  std::fill(mask.i.begin(), mask.i.end(), 1);
  return Arrays{*x, std::move(mask)};
}

Result<Arrays> Compress(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* condition, c.In(1, Accept::kBool));
  const bool flat = !c.Has("axis");
  int64_t axis = 0;
  if (!flat) {
    SLM_ASSIGN_OR_RETURN(axis, Axis(c.Int("axis", 0), x->dims.size()));
  }
  const Lanes l = flat ? Lanes{1, x->size(), 1} : LanesOf(x->dims, axis);
  std::vector<int64_t> kept;
  if (condition->dims.size() != 1 || condition->size() > l.n) return Wrong("a condition that is longer than the axis");
  for (int64_t k = 0; k < condition->size(); ++k)
    if (condition->i[static_cast<size_t>(k)] != 0) kept.push_back(k);
  const int64_t n = static_cast<int64_t>(kept.size());
  Dims dims = flat ? Dims{n} : x->dims;
  dims[static_cast<size_t>(axis)] = n;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  for (int64_t k = 0; k < y.size(); ++k)
    CopyValue(*x, (k / l.inner / n * l.n + kept[static_cast<size_t>(k / l.inner % n)]) * l.inner + k % l.inner, y, k);
  return One(std::move(y));
}

// The first sequence_lens[b] values of each sequence are turned round.
Result<Arrays> ReverseSequence(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const auto lengths, c.Ints(1));
  const int64_t time = c.Int("time_axis", 0), batch = c.Int("batch_axis", 1);
  if (x->dims.size() < 2 || time + batch != 1 || time < 0 || time > 1) return Wrong("time_axis and batch_axis are 0 and 1");
  const int64_t n = x->dims[static_cast<size_t>(time)], n_batch = x->dims[static_cast<size_t>(batch)];
  if (static_cast<int64_t>(lengths.size()) != n_batch) return Wrong("one length a sequence is needed");
  for (const int64_t length : lengths)
    if (length < 0 || length > n) return Wrong(fmt::format("a length of {} of {}", length, n));
  Array y = *x;
  const Dims own = Strides(x->dims);
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t t = k / own[static_cast<size_t>(time)] % n,
                  length = lengths[static_cast<size_t>(k / own[static_cast<size_t>(batch)] % n_batch)];
    if (t < length) CopyValue(*x, k + (length - 1 - 2 * t) * own[static_cast<size_t>(time)], y, k);
  }
  return One(std::move(y));
}

Result<Arrays> EyeLike(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ElementType type, c.Type("dtype", x->type));
  if (x->dims.size() != 2 || IsString(type)) return Wrong("not a matrix of numbers");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, x->dims));
  const int64_t diagonal = std::clamp(c.Int("k", 0), -x->dims[0], x->dims[1]);
  for (int64_t row = 0; row < x->dims[0]; ++row)
    if (const int64_t column = row + diagonal; column >= 0 && column < x->dims[1]) Set(y, row * x->dims[1] + column, 1);
  return One(std::move(y));
}

Result<Arrays> DepthToSpace(const Call& c) {
  const int64_t s = c.Int("blocksize", 0);
  SLM_ASSIGN_OR_RETURN(const Array* x, Picture(c, s));
  const Dims& d = x->dims;
  if (d[1] % (s * s) != 0) return Wrong("channels that blocks do not divide");
  const int64_t depth = d[1] / (s * s);
  const Dims joined{d[0], depth, d[2] * s, d[3] * s};
  if (c.Text("mode", "DCR") == "DCR") return Blocks(c, {d[0], s, s, depth, d[2], d[3]}, {0, 3, 4, 1, 5, 2}, joined);
  return Blocks(c, {d[0], depth, s, s, d[2], d[3]}, {0, 1, 4, 2, 5, 3}, joined);
}

Result<Arrays> SpaceToDepth(const Call& c) {
  const int64_t s = c.Int("blocksize", 0);
  SLM_ASSIGN_OR_RETURN(const Array* x, Picture(c, s));
  const Dims& d = x->dims;
  if (d[2] % s != 0 || d[3] % s != 0) return Wrong("a picture that blocks do not divide");
  const Dims split{d[0], d[1], d[2] / s, s, d[3] / s, s}, joined{d[0], d[1] * s * s, d[2] / s, d[3] / s};
  if (c.Text("mode", "DCR") == "DCR") return Blocks(c, split, {0, 3, 5, 1, 2, 4}, joined);
  return Blocks(c, split, {0, 1, 3, 5, 2, 4}, joined);
}

namespace {

enum class Sort : uint8_t { kYes, kNo };

Result<Arrays> UniqueOf(const Call& c, Sort sort) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  const bool flat = !c.Has("axis");
  int64_t axis = 0;
  if (!flat) {
    SLM_ASSIGN_OR_RETURN(axis, Axis(c.Int("axis", 0), x->dims.size()));
  }
  const Slices s{flat ? Lanes{1, x->size(), 1} : LanesOf(x->dims, axis)};
  const int64_t n = s.lanes.n, width = s.lanes.outer * s.lanes.inner;
  SLM_RETURN_IF_ERROR(c.Count(n, std::max<int64_t>(1, width)));
  SLM_RETURN_IF_ERROR(c.Count(n * std::max<int64_t>(1, width), 25));  // a sort
  const auto less = [&](int64_t a, int64_t b) {
    for (int64_t k = 0; k < width; ++k) {
      if (Before(*x, s.Value(a, k), s.Value(b, k))) return true;
      if (Before(*x, s.Value(b, k), s.Value(a, k))) return false;
    }
    return false;
  };
  std::vector<int64_t> order(static_cast<size_t>(n)), first, counts, place(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), less);
  for (size_t k = 0; k < order.size(); ++k) {
    if (k == 0 || less(order[k - 1], order[k])) {
      first.push_back(order[k]);
      counts.push_back(0);
    }
    ++counts.back();
    place[static_cast<size_t>(order[k])] = static_cast<int64_t>(first.size()) - 1;
  }
  if (sort == Sort::kNo) {  // in the order in which they come
    std::vector<int64_t> rank(first.size()), to(first.size());
    std::iota(rank.begin(), rank.end(), 0);
    std::sort(rank.begin(), rank.end(),
              [&](int64_t a, int64_t b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });
    const std::vector<int64_t> old_first = first, old_counts = counts;
    for (size_t k = 0; k < rank.size(); ++k) {
      first[k] = old_first[static_cast<size_t>(rank[k])];
      counts[k] = old_counts[static_cast<size_t>(rank[k])];
      to[static_cast<size_t>(rank[k])] = static_cast<int64_t>(k);
    }
    for (int64_t& p : place) p = to[static_cast<size_t>(p)];
  }
  const int64_t n_unique = static_cast<int64_t>(first.size());
  Dims dims = flat ? Dims{n_unique} : x->dims;
  dims[static_cast<size_t>(axis)] = n_unique;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  const Slices out{{s.lanes.outer, n_unique, s.lanes.inner}};
  for (int64_t u = 0; u < n_unique; ++u)
    for (int64_t k = 0; k < width; ++k) CopyValue(*x, s.Value(first[static_cast<size_t>(u)], k), y, out.Value(u, k));
  return Arrays{std::move(y), IntVector(std::move(first)), IntVector(std::move(place)), IntVector(std::move(counts))};
}

}  // namespace

// values, where each stands first, the place of each input in the values, how often each stands
Result<Arrays> Unique(const Call& c) { return UniqueOf(c, c.Int("sorted", 1) != 0 ? Sort::kYes : Sort::kNo); }

// com.microsoft: in the order in which they come; without where they stand first.
Result<Arrays> UniqueMs(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Arrays y, UniqueOf(c, Sort::kNo));
  y.erase(y.begin() + 1);
  return y;
}

}  // namespace slm::reference
