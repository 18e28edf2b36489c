// See axes.h.
#include "importer/axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace slm::importer {
namespace {

using Kind = Axis::Kind;

Error CannotReshape(const Axes& axes, const Dims& target, const CallLengths& call) {
  return Error(Code::kUnsupported, fmt::format("a reshape of [{}] to [{}]", fmt::join(ShapeOf(axes, call), ", "), fmt::join(target, ", ")),
               "only heads may be split off and joined again");
}

bool Joins(const Axis& outer, const Axis& inner) {
  if (outer.kind != Kind::kFeature || outer.repeat != 1) return false;
  if (inner.kind == Kind::kRepeat) return true;
  return inner.kind == Kind::kFeature && inner.repeat == 1 && outer.stride == inner.n * inner.stride;
}

Axis Joined(const Axis& outer, const Axis& inner) {
  if (inner.kind == Kind::kRepeat) return {Kind::kFeature, outer.n, outer.stride, inner.n};
  return {Kind::kFeature, outer.n * inner.n, inner.stride, 1};
}

}  // namespace

int64_t Extent(const Axis& a, const CallLengths& call) {
  switch (a.kind) {
    case Kind::kOne: return 1;
    case Kind::kToken: return call.tokens * a.n;
    case Kind::kPast: return call.past;
    case Kind::kSlot: return call.past + call.tokens;
    case Kind::kFeature: return a.n * a.repeat;
    case Kind::kRepeat: return a.n;
  }
  return 1;
}

Dims ShapeOf(const Axes& axes, const CallLengths& call) {
  Dims dims;
  for (const Axis& a : axes) dims.push_back(Extent(a, call));
  return dims;
}

Axes RowAxes(int64_t width, CallForm form) { return {One(), TokenAxisOf(form), Feature(width)}; }

int64_t Width(const Axes& axes) {
  int64_t n = 1;
  for (const Axis& a : axes)
    if (a.kind == Kind::kFeature || a.kind == Kind::kToken) n *= a.n;
  return n;
}

Axes WithoutOnes(const Axes& axes) {
  Axes out;
  for (const Axis& a : axes)
    if (a.kind != Kind::kOne) out.push_back(a);
  return out;
}

bool InOrder(const Axes& axes) {
  const Axes all = WithoutOnes(axes);
  int64_t stride = Width(axes);
  if (!all.empty() && all[0].kind == Kind::kToken && all[0].n != 1) return false;
  for (size_t i = !all.empty() && all[0].kind == Kind::kToken ? 1 : 0; i < all.size(); ++i) {
    if (all[i].kind != Kind::kFeature || all[i].repeat != 1 || all[i].n * all[i].stride != stride) return false;
    stride = all[i].stride;
  }
  return stride == 1;
}

int TokenAxis(const Axes& axes) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].kind == Kind::kToken) return static_cast<int>(i);
  return -1;
}

namespace {

// The token axis `a`, which is to be `parts` times as long as there are tokens: joined to the outer part of the axis behind it, left[*at],
// or apart from it again. False: it cannot be.
bool JoinTokens(int64_t parts, Axis* a, Axes* left, size_t* at) {
  if (a->n > 1 && parts == 1) {
    (*left)[--*at] = Feature(a->n, a->stride);
    *a = OfKind(Kind::kToken);
    return true;
  }
  if (a->n != 1 || parts < 2 || *at == left->size()) return false;
  Axis& next = (*left)[*at];
  if (next.kind != Kind::kFeature || next.repeat != 1 || next.n % parts != 0) return false;
  *a = Axis{Kind::kToken, parts, next.stride * (next.n / parts), 1};
  if (next.n == parts) ++*at;
  else next = Feature(next.n / parts, next.stride);
  return true;
}

}  // namespace

Result<Axes> Reshape(const Axes& axes, const std::vector<Dims>& target, const std::vector<CallLengths>& calls) {
  const Error cannot = CannotReshape(axes, target[0], calls[0]);
  const size_t rank = target[0].size();
  for (const Dims& t : target)
    if (t.size() != rank) return cannot;
  Axes left = WithoutOnes(axes), out;
  size_t at = 0;  // of `left`
  for (size_t i = 0; i < rank; ++i) {
    const auto is = [&](auto extent) {
      for (size_t p = 0; p < calls.size(); ++p)
        if (target[p][i] != extent(calls[p])) return false;
      return true;
    };
    if (is([](const CallLengths&) { return int64_t{1}; })) {
      out.push_back(One());
      continue;
    }
    if (at == left.size()) return cannot;
    Axis a = left[at++];
    const auto same = [&](const CallLengths& c) { return Extent(a, c); };
    const int64_t want = target[0][i];
    if (a.kind == Kind::kToken && !is(same) && want % calls[0].tokens == 0 &&
        is([&](const CallLengths& c) { return c.tokens * (want / calls[0].tokens); }) &&
        !JoinTokens(want / calls[0].tokens, &a, &left, &at))
      return cannot;
    while (!is(same) && at < left.size() && Extent(a, calls[0]) < want && Joins(a, left[at])) a = Joined(a, left[at++]);
    if (!is(same)) {  // split: the outer part is this dimension
      if (a.kind != Kind::kFeature || a.repeat != 1 || want < 1 || a.n % want != 0 || !is([&](const CallLengths&) { return want; }))
        return cannot;
      left[--at] = Feature(a.n / want, a.stride);
      a = Axis{Kind::kFeature, want, a.stride * (left[at].kind == Kind::kFeature ? left[at].n : 1), 1};
    }
    out.push_back(a);
  }
  while (at < left.size() && left[at].kind == Kind::kOne) ++at;
  if (at != left.size()) return cannot;
  return out;
}

}  // namespace slm::importer
