// Softmax and the normalizations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/call.h"

namespace slm::reference {
namespace {

enum class Form : uint8_t { kSoftmax, kLog, kHardmax };

// Since operator set 13 along an axis; before that over all dimensions from the axis on, by default the second.
Result<Lanes> SoftmaxLanes(const Call& c, const Array& x) {
  if (c.opset() >= 13) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -1), x.dims.size()));
    return LanesOf(x.dims, axis);
  }
  int64_t axis = c.Int("axis", 1);
  const int64_t rank = static_cast<int64_t>(x.dims.size());
  if (axis < -rank || axis > rank) return Wrong(fmt::format("axis {} of {} dimensions", axis, rank));
  if (axis < 0) axis += rank;
  Lanes l;
  for (int64_t k = 0; k < rank; ++k) (k < axis ? l.outer : l.n) *= x.dims[static_cast<size_t>(k)];
  return l;
}

Result<Arrays> SoftmaxAlong(const Call& c, Form form) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Lanes l, SoftmaxLanes(c, *x));
  Array y = *x;
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.inner; ++i) {
      const auto at = [&](int64_t k) { return static_cast<size_t>((o * l.n + k) * l.inner + i); };
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t k = 0; k < l.n; ++k) top = std::max(top, x->f[at(k)]);
      if (form == Form::kHardmax) {  // 1 where the largest stands first
        bool found = false;
        for (int64_t k = 0; k < l.n; ++k) {
          const bool is = !found && x->f[at(k)] == top;
          y.f[at(k)] = is ? 1 : 0;
          found = found || is;
        }
        continue;
      }
      for (int64_t k = 0; k < l.n; ++k) sum += std::exp(x->f[at(k)] - top);
      for (int64_t k = 0; k < l.n; ++k) {
        const double v = x->f[at(k)] - top;
        y.f[at(k)] = RoundTo(y.type, form == Form::kLog ? v - std::log(sum) : std::exp(v) / sum);
      }
    }
  return One(std::move(y));
}

struct Normalized {
  Array y, mean, factor;  // factor: what the centred (or plain) value is multiplied with
};

enum class Centre : uint8_t { kMean, kNone };

// Over the dimensions from `axis` on; scale and bias broadcast to x.
Result<Normalized> Normalize(const Array& x, int64_t axis, double epsilon, Centre centre, const Array* scale, const Array* bias) {
  Dims kept = x.dims, scale_steps(x.dims.size()), bias_steps(x.dims.size());
  int64_t rows = 1, width = 1;
  for (size_t k = 0; k < x.dims.size(); ++k) {
    if (static_cast<int64_t>(k) < axis) {
      rows *= x.dims[k];
    } else {
      width *= x.dims[k];
      kept[k] = 1;
    }
  }
  const auto fits = [&](const Array* a, Dims& steps) -> Status {
    if (!a) return Ok();
    SLM_ASSIGN_OR_RETURN(const Dims joined, BroadcastShape(a->dims, x.dims));
    if (joined != x.dims || !IsFloat(a->type)) return Wrong("scale or bias do not broadcast to the input");
    steps = BroadcastStrides(a->dims, x.dims);
    return Ok();
  };
  SLM_RETURN_IF_ERROR(fits(scale, scale_steps));
  SLM_RETURN_IF_ERROR(fits(bias, bias_steps));
  SLM_ASSIGN_OR_RETURN(Array mean, Zeros(ElementType::kFloat, kept));
  Normalized n{x, mean, mean};
  std::vector<double> means(static_cast<size_t>(rows)), factors(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = x.f.data() + r * width;
    double sum = 0, squares = 0;
    if (centre == Centre::kMean)
      for (int64_t k = 0; k < width; ++k) sum += row[k] / static_cast<double>(width);
    for (int64_t k = 0; k < width; ++k) squares += (row[k] - sum) * (row[k] - sum) / static_cast<double>(width);
    means[static_cast<size_t>(r)] = sum;
    factors[static_cast<size_t>(r)] = 1 / std::sqrt(squares + epsilon);
    Set(n.mean, r, sum);
    Set(n.factor, r, factors[static_cast<size_t>(r)]);
  }
  Walk(x.dims, {scale_steps, bias_steps}, [&](int64_t at, const Dims& from) {
    const size_t r = static_cast<size_t>(at / width);
    const double v = (x.f[static_cast<size_t>(at)] - means[r]) * factors[r];
    Set(n.y, at, v * (scale ? Number(*scale, from[0]) : 1) + (bias ? Number(*bias, from[1]) : 0));
  });
  return n;
}

// x + skip (+ bias), normalized over the last dimension.
Result<Arrays> SkipNormalize(const Call& c, Centre centre, const Array* bias, const Array* added) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* skip, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(2, Accept::kFloat));
  if (x->dims.empty() || skip->type != x->type) return Wrong("a scalar, or inputs of different types");
  SLM_ASSIGN_OR_RETURN(const Array wide, BroadcastTo(*skip, x->dims));
  Array sum = *x;
  const size_t width = static_cast<size_t>(x->dims.back());
  if (added && (added->dims != Dims{x->dims.back()} || !IsFloat(added->type))) return Wrong("the bias does not fit");
  for (size_t k = 0; k < sum.f.size(); ++k) sum.f[k] = RoundTo(sum.type, sum.f[k] + wide.f[k] + (added ? added->f[k % width] : 0));
  SLM_ASSIGN_OR_RETURN(Normalized n,
                       Normalize(sum, static_cast<int64_t>(x->dims.size()) - 1, c.Float("epsilon", 1e-12), centre, scale, bias));
  return Arrays{std::move(n.y), std::move(n.mean), std::move(n.factor), std::move(sum)};
}

}  // namespace

void SoftmaxRow(double* row, int64_t n) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t k = 0; k < n; ++k) top = std::max(top, row[k]);
  const double from = std::isinf(top) && top < 0 ? 0 : top;
  for (int64_t k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - from);
  if (sum != 0)
    for (int64_t k = 0; k < n; ++k) row[k] /= sum;
}

Result<Arrays> Softmax(const Call& c) { return SoftmaxAlong(c, Form::kSoftmax); }
Result<Arrays> LogSoftmax(const Call& c) { return SoftmaxAlong(c, Form::kLog); }
Result<Arrays> Hardmax(const Call& c) { return SoftmaxAlong(c, Form::kHardmax); }

Result<Arrays> MeanVarianceNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  std::vector<int64_t> axes = c.IntList("axes");
  if (!c.Has("axes")) axes = {0, 2, 3};
  std::vector<uint8_t> folded(x->dims.size());
  for (const int64_t a : axes) {
    SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(a, x->dims.size()));
    folded[static_cast<size_t>(axis)] = 1;
  }
  Dims kept = x->dims;
  for (size_t k = 0; k < kept.size(); ++k)
    if (folded[k]) kept[k] = 1;
  SLM_ASSIGN_OR_RETURN(const int64_t n_kept, Count(kept));
  std::vector<double> sums(static_cast<size_t>(n_kept)), squares(static_cast<size_t>(n_kept));
  const double n = n_kept > 0 ? static_cast<double>(x->size()) / static_cast<double>(n_kept) : 0;
  const Dims strides = BroadcastStrides(kept, x->dims);
  Array y = *x;
  Walk(x->dims, {strides}, [&](int64_t at, const Dims& to) { sums[static_cast<size_t>(to[0])] += Number(*x, at) / n; });
  const auto centred = [&](int64_t at, const Dims& to) { return Number(*x, at) - sums[static_cast<size_t>(to[0])]; };
  Walk(x->dims, {strides},
       [&](int64_t at, const Dims& to) { squares[static_cast<size_t>(to[0])] += centred(at, to) * centred(at, to) / n; });
  // ONNX adds 1e-9 to the deviation, not to the variance.
  Walk(x->dims, {strides},
       [&](int64_t at, const Dims& to) { Set(y, at, centred(at, to) / (std::sqrt(squares[static_cast<size_t>(to[0])]) + 1e-9)); });
  return One(std::move(y));
}

Result<Arrays> LayerNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -1), x->dims.size()));
  SLM_ASSIGN_OR_RETURN(Normalized n, Normalize(*x, axis, c.Float("epsilon", 1e-5), Centre::kMean, scale, c.Optional(2)));
  return Arrays{std::move(n.y), std::move(n.mean), std::move(n.factor)};
}

Result<Arrays> RmsNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -1), x->dims.size()));
  SLM_ASSIGN_OR_RETURN(Normalized n, Normalize(*x, axis, c.Float("epsilon", 1e-5), Centre::kNone, scale, nullptr));
  return Arrays{std::move(n.y), std::move(n.factor)};
}

// input, skip, gamma, beta, bias
Result<Arrays> SkipLayerNormalization(const Call& c) { return SkipNormalize(c, Centre::kMean, c.Optional(3), c.Optional(4)); }
// input, skip, gamma, bias
Result<Arrays> SkipRmsNormalization(const Call& c) { return SkipNormalize(c, Centre::kNone, nullptr, c.Optional(3)); }

}  // namespace slm::reference
