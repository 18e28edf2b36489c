// Normalizations over other sets than the last dimensions: by channel, by group, by batch; and vectors of length 1.
#include <cmath>

#include "reference/call.h"

namespace slm::reference {
namespace {

// One scale and one bias a channel.
struct PerChannel {
  const Array *scale = nullptr, *bias = nullptr;
};

Result<PerChannel> PerChannelOf(const Call& c, const Array& x) {
  PerChannel p;
  SLM_ASSIGN_OR_RETURN(p.scale, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(p.bias, c.In(2, Accept::kFloat));
  if (x.dims.size() < 2 || p.scale->size() != x.dims[1] || p.bias->size() != x.dims[1])
    return Wrong("scale or bias do not fit the channels");
  return p;
}

// Runs of `n` values become centred and of variance 1; then each channel's scale and bias.
Result<Arrays> NormalizeRuns(const Call& c, const Array& x, int64_t n, const PerChannel& p) {
  const double epsilon = c.Float("epsilon", 1e-5);
  const Lanes l = LanesOf(x.dims, 1);
  Array y = x;
  for (int64_t begin = 0; begin < y.size(); begin += n) {
    double mean = 0, variance = 0;
    for (int64_t k = begin; k < begin + n; ++k) mean += Number(x, k) / static_cast<double>(n);
    for (int64_t k = begin; k < begin + n; ++k) variance += (Number(x, k) - mean) * (Number(x, k) - mean) / static_cast<double>(n);
    for (int64_t k = begin; k < begin + n; ++k) {
      const int64_t channel = k / l.inner % l.n;
      Set(y, k, (Number(x, k) - mean) / std::sqrt(variance + epsilon) * Number(*p.scale, channel) + Number(*p.bias, channel));
    }
  }
  return One(std::move(y));
}

}  // namespace

Result<Arrays> InstanceNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const PerChannel p, PerChannelOf(c, *x));
  return NormalizeRuns(c, *x, LanesOf(x->dims, 1).inner, p);
}

// Of operator set 21: one scale and bias a channel.
Result<Arrays> GroupNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const PerChannel p, PerChannelOf(c, *x));
  const int64_t groups = c.Int("num_groups", 0);
  if (groups < 1 || x->dims[1] % groups != 0) return Wrong("num_groups does not divide the channels");
  return NormalizeRuns(c, *x, x->dims[1] / groups * LanesOf(x->dims, 1).inner, p);
}

// x, scale, bias, mean, variance: with statistics that are given.
Result<Arrays> BatchNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const PerChannel p, PerChannelOf(c, *x));
  SLM_ASSIGN_OR_RETURN(const Array* mean, c.In(3, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* variance, c.In(4, Accept::kFloat));
  if (c.Int("training_mode", 0) != 0) return Refuse("training_mode");
  if (mean->size() != x->dims[1] || variance->size() != x->dims[1]) return Wrong("mean or variance do not fit the channels");
  const double epsilon = c.Float("epsilon", 1e-5);
  const Lanes l = LanesOf(x->dims, 1);
  Array y = *x;
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t channel = k / l.inner % l.n;
    const double centred = (Number(*x, k) - Number(*mean, channel)) / std::sqrt(Number(*variance, channel) + epsilon);
    Set(y, k, centred * Number(*p.scale, channel) + Number(*p.bias, channel));
  }
  return One(std::move(y));
}

// Vectors along an axis divided by their length; those of length 0 stay.
Result<Arrays> LpNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", -1), x->dims.size()));
  const int64_t power = c.Int("p", 2);
  if (power != 1 && power != 2) return Wrong("p is 1 or 2");
  const Lanes l = LanesOf(x->dims, axis);
  Array y = *x;
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.inner; ++i) {
      double sum = 0;
      const auto at = [&](int64_t k) { return (o * l.n + k) * l.inner + i; };
      for (int64_t k = 0; k < l.n; ++k) sum += power == 1 ? std::abs(Number(*x, at(k))) : Number(*x, at(k)) * Number(*x, at(k));
      const double length = power == 1 ? sum : std::sqrt(sum);
      for (int64_t k = 0; k < l.n; ++k) Set(y, at(k), length == 0 ? 0 : Number(*x, at(k)) / length);
    }
  return One(std::move(y));
}

}  // namespace slm::reference
