// Activations that encoders and older decoders have, and the trigonometric operators. See each.h.
#include <algorithm>
#include <cmath>

#include "reference/each.h"

namespace slm::reference {

Result<Arrays> Tan(const Call& c) {
  return EachFloat(c, [](double x) { return std::tan(x); });
}
Result<Arrays> Asin(const Call& c) {
  return EachFloat(c, [](double x) { return std::asin(x); });
}
Result<Arrays> Acos(const Call& c) {
  return EachFloat(c, [](double x) { return std::acos(x); });
}
Result<Arrays> Atan(const Call& c) {
  return EachFloat(c, [](double x) { return std::atan(x); });
}
Result<Arrays> Sinh(const Call& c) {
  return EachFloat(c, [](double x) { return std::sinh(x); });
}
Result<Arrays> Cosh(const Call& c) {
  return EachFloat(c, [](double x) { return std::cosh(x); });
}
Result<Arrays> Asinh(const Call& c) {
  return EachFloat(c, [](double x) { return std::asinh(x); });
}
Result<Arrays> Acosh(const Call& c) {
  return EachFloat(c, [](double x) { return std::acosh(x); });
}
Result<Arrays> Atanh(const Call& c) {
  return EachFloat(c, [](double x) { return std::atanh(x); });
}

Result<Arrays> HardSigmoid(const Call& c) {
  const double alpha = c.Float("alpha", 0.2), beta = c.Float("beta", 0.5);
  return EachFloat(c, [=](double x) { return std::clamp(alpha * x + beta, 0.0, 1.0); });  // NaN stays
}
Result<Arrays> HardSwish(const Call& c) {
  return EachFloat(c, [](double x) { return x * std::fmin(std::fmax(x / 6 + 0.5, 0), 1); });
}
Result<Arrays> Mish(const Call& c) {
  return EachFloat(c, [](double x) { return x * std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x))); });
}
Result<Arrays> Celu(const Call& c) {
  const double alpha = c.Float("alpha", 1);
  return EachFloat(c, [=](double x) { return x < 0 ? alpha * std::expm1(x / alpha) : x; });
}
Result<Arrays> Selu(const Call& c) {
  const double alpha = c.Float("alpha", 1.67326319217681884765625), gamma = c.Float("gamma", 1.05070102214813232421875);
  return EachFloat(c, [=](double x) { return gamma * (x > 0 ? x : alpha * std::expm1(x)); });
}
Result<Arrays> ThresholdedRelu(const Call& c) {
  const double alpha = c.Float("alpha", 1);
  return EachFloat(c, [=](double x) { return x > alpha ? x : 0; });
}
Result<Arrays> Shrink(const Call& c) {
  const double lambda = c.Float("lambd", 0.5), bias = c.Float("bias", 0);
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  Array y = *x;
  for (int64_t k = 0; k < y.size(); ++k) {
    const double v = Number(*x, k);
    Set(y, k, v < -lambda ? v + bias : v > lambda ? v - bias : 0);
  }
  return One(std::move(y));
}

// x, slope that broadcasts to it
Result<Arrays> PRelu(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Array* slope, c.In(1, Accept::kNumber));
  if (slope->type != x->type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(const Array wide, BroadcastTo(*slope, x->dims));
  Array y = *x;
  for (int64_t k = 0; k < y.size(); ++k)
    if (Number(*x, k) < 0) Set(y, k, Number(*x, k) * Number(wide, k));
  return One(std::move(y));
}

}  // namespace slm::reference
