// Conv over any number of spatial dimensions, as hybrid decoders (a short one along the tokens) and encoders of sound or pictures have it.
#include <algorithm>

#include "reference/call.h"

namespace slm::reference {
namespace {

struct Window {
  Dims kernel, strides, dilations, before;  // a value each spatial dimension
  Dims out;
};

constexpr int64_t kMostStep = int64_t{1} << 24;

Result<Dims> OnesOr(const Call& c, const char* name, size_t n) {
  Dims given = c.IntList(name);
  if (given.empty()) given.assign(n, 1);
  if (given.size() != n) return Wrong(fmt::format("{} has {} values for {} dimensions", name, given.size(), n));
  for (const int64_t v : given)
    if (v < 1 || v > kMostStep) return Wrong(std::string(name) + " beyond its range");
  return given;
}

Result<Window> WindowOf(const Call& c, const Array& x, const Array& w) {
  const size_t n = x.dims.size() - 2;
  Window win;
  win.kernel.assign(w.dims.begin() + 2, w.dims.end());
  if (const Dims given = c.IntList("kernel_shape"); !given.empty() && given != win.kernel)
    return Wrong("kernel_shape is not that of the weights");
  SLM_ASSIGN_OR_RETURN(win.strides, OnesOr(c, "strides", n));
  SLM_ASSIGN_OR_RETURN(win.dilations, OnesOr(c, "dilations", n));
  Dims pads = c.IntList("pads");
  const std::string automatic = c.Text("auto_pad", "NOTSET");
  if (pads.empty() || automatic != "NOTSET") pads.assign(2 * n, 0);
  if (pads.size() != 2 * n) return Wrong("two pads a dimension are needed");
  for (size_t d = 0; d < n; ++d) {
    const int64_t size = x.dims[d + 2], span = (win.kernel[d] - 1) * win.dilations[d] + 1;
    if (win.kernel[d] < 1 || span > kMostStep) return Wrong("an empty kernel, or one that is too long");
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      const int64_t out = (size + win.strides[d] - 1) / win.strides[d],
                    pad = std::max<int64_t>(0, (out - 1) * win.strides[d] + span - size);
      pads[d] = automatic == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
      pads[n + d] = pad - pads[d];
    } else if (automatic != "NOTSET" && automatic != "VALID") {
      return Refuse("auto_pad '" + automatic + "'");
    }
    if (pads[d] < 0 || pads[n + d] < 0 || pads[d] > kMostStep || pads[n + d] > kMostStep) return Wrong("pads beyond their range");
    win.before.push_back(pads[d]);
    const int64_t room = size + pads[d] + pads[n + d] - span;
    if (room < 0) return Wrong("a kernel that is longer than the input");
    win.out.push_back(room / win.strides[d] + 1);
  }
  return win;
}

}  // namespace

// x [B, C, …], w [M, C / group, …], bias [M]
Result<Arrays> Conv(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* w, c.In(1, Accept::kFloat));
  const Array* bias = c.Optional(2);
  const int64_t groups = c.Int("group", 1);
  if (x->dims.size() < 3 || x->dims.size() != w->dims.size() || w->type != x->type || groups < 1 || groups > kMostStep ||
      w->dims[0] % groups != 0 || w->dims[1] > kMostStep / groups || w->dims[1] * groups != x->dims[1] ||
      (bias && (bias->dims != Dims{w->dims[0]} || bias->type != x->type)))
    return Wrong("input, weights, bias and group do not fit each other");
  SLM_ASSIGN_OR_RETURN(const Window win, WindowOf(c, *x, *w));
  Dims dims{x->dims[0], w->dims[0]};
  dims.insert(dims.end(), win.out.begin(), win.out.end());
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(x->type, dims));
  const Lanes taps = LanesOf(w->dims, 0), places = LanesOf(dims, 1);  // inner: of one output channel
  const int64_t per_group = w->dims[0] / groups, kernel = LanesOf(w->dims, 1).inner;
  SLM_RETURN_IF_ERROR(c.Count(y.size(), taps.inner));
  const Dims x_steps = Strides(x->dims), out_steps = Strides(win.out), kernel_steps = Strides(win.kernel);
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t place = k % places.inner, channel = k / places.inner % w->dims[0], b = k / places.inner / w->dims[0];
    double sum = bias ? Number(*bias, channel) : 0;
    for (int64_t tap = 0; tap < taps.inner; ++tap) {
      int64_t from = b * x_steps[0] + (channel / per_group * w->dims[1] + tap / kernel) * x_steps[1];
      bool inside = true;
      for (size_t d = 0; d < win.out.size() && inside; ++d) {
        const int64_t at = place / out_steps[d] % win.out[d] * win.strides[d] - win.before[d] +
                           tap % kernel / kernel_steps[d] % win.kernel[d] * win.dilations[d];
        inside = at >= 0 && at < x->dims[d + 2];
        from += at * x_steps[d + 2];
      }
      if (inside) sum += Number(*x, from) * Number(*w, channel * taps.inner + tap);
    }
    Set(y, k, sum);
  }
  return One(std::move(y));
}

}  // namespace slm::reference
