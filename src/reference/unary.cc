// Operators of one input, value by value.
#include <cmath>
#include <numbers>

#include "reference/each.h"

namespace slm::reference {
namespace {

// Also for integers.
template <class F>
Result<Arrays> EachNumber(const Call& c, F f) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  Array y = *x;
  for (double& v : y.f) v = f(v);
  for (int64_t& v : y.i) v = WrapTo(y.type, f(v));
  return One(std::move(y));
}

// Wrapping, as two's complement does.
int64_t Negative(int64_t v) { return static_cast<int64_t>(0 - static_cast<uint64_t>(v)); }

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

double GeluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }

}  // namespace

Result<Arrays> Abs(const Call& c) {
  struct {
    double operator()(double v) const { return std::abs(v); }
    int64_t operator()(int64_t v) const { return v < 0 ? Negative(v) : v; }
  } f;
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  if (x->type == ElementType::kUint64) return One(*x);
  return EachNumber(c, f);
}

Result<Arrays> Neg(const Call& c) {
  struct {
    double operator()(double v) const { return -v; }
    int64_t operator()(int64_t v) const { return Negative(v); }
  } f;
  return EachNumber(c, f);
}

Result<Arrays> Sign(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kNumber));
  Array y = *x;
  for (int64_t k = 0; k < y.size(); ++k) {
    const double v = Number(*x, k);
    Set(y, k, std::isnan(v) ? v : (v > 0) - (v < 0));
  }
  return One(std::move(y));
}

Result<Arrays> Ceil(const Call& c) {
  return EachFloat(c, [](double x) { return std::ceil(x); });
}
Result<Arrays> Floor(const Call& c) {
  return EachFloat(c, [](double x) { return std::floor(x); });
}
Result<Arrays> RoundEven(const Call& c) {
  return EachFloat(c, [](double x) { return std::nearbyint(x); });
}
Result<Arrays> Exp(const Call& c) {
  return EachFloat(c, [](double x) { return std::exp(x); });
}
Result<Arrays> Log(const Call& c) {
  return EachFloat(c, [](double x) { return std::log(x); });
}
Result<Arrays> Sqrt(const Call& c) {
  return EachFloat(c, [](double x) { return std::sqrt(x); });
}
Result<Arrays> Reciprocal(const Call& c) {
  return EachFloat(c, [](double x) { return 1 / x; });
}
Result<Arrays> Sin(const Call& c) {
  return EachFloat(c, [](double x) { return std::sin(x); });
}
Result<Arrays> Cos(const Call& c) {
  return EachFloat(c, [](double x) { return std::cos(x); });
}
Result<Arrays> Tanh(const Call& c) {
  return EachFloat(c, [](double x) { return std::tanh(x); });
}
Result<Arrays> Erf(const Call& c) {
  return EachFloat(c, [](double x) { return std::erf(x); });
}
Result<Arrays> Sigmoid(const Call& c) { return EachFloat(c, SigmoidOf); }
Result<Arrays> Softplus(const Call& c) {
  return EachFloat(c, [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); });
}
Result<Arrays> Softsign(const Call& c) {
  return EachFloat(c, [](double x) { return x / (1 + std::abs(x)); });
}

Result<Arrays> Relu(const Call& c) {
  struct {
    double operator()(double v) const { return v < 0 ? 0 : v; }
    int64_t operator()(int64_t v) const { return v < 0 ? 0 : v; }
  } f;
  return EachNumber(c, f);
}

Result<Arrays> LeakyRelu(const Call& c) {
  const double alpha = c.Float("alpha", 0.01);
  return EachFloat(c, [alpha](double x) { return x < 0 ? alpha * x : x; });
}

Result<Arrays> Elu(const Call& c) {
  const double alpha = c.Float("alpha", 1);
  return EachFloat(c, [alpha](double x) { return x < 0 ? alpha * std::expm1(x) : x; });
}

// a * sigmoid(alpha * a) * b
Result<Arrays> SwiGlu(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kFloat));
  if (a->dims != b->dims || a->type != b->type) return Wrong("inputs of different types or shapes");
  const double alpha = c.Float("alpha", 1);
  Array y = *a;
  for (size_t k = 0; k < y.f.size(); ++k) y.f[k] = RoundTo(y.type, a->f[k] * SigmoidOf(alpha * a->f[k]) * b->f[k]);
  return One(std::move(y));
}

Result<Arrays> Gelu(const Call& c) {
  if (c.Text("approximate", "none") == "tanh") return EachFloat(c, GeluTanh);
  return EachFloat(c, [](double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); });
}

Result<Arrays> Swish(const Call& c) {
  const double alpha = c.Float("alpha", 1);
  return EachFloat(c, [alpha](double x) { return x * SigmoidOf(alpha * x); });
}

// x and an optional bias of the last dimension.
Result<Arrays> FastGelu(const Call& c) {
  const Array* bias = c.Optional(1);
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  if (!bias) return EachFloat(c, GeluTanh);
  if (x->dims.empty() || bias->dims != Dims{x->dims.back()} || bias->type != x->type) return Wrong("the bias does not fit the input");
  Array y = *x;
  for (size_t k = 0; k < y.f.size(); ++k) y.f[k] = RoundTo(y.type, GeluTanh(x->f[k] + bias->f[k % bias->f.size()]));
  return One(std::move(y));
}

Result<Arrays> QuickGelu(const Call& c) {
  const double alpha = c.Float("alpha", 1.702);
  return EachFloat(c, [alpha](double x) { return x * SigmoidOf(alpha * x); });
}

Result<Arrays> IsNan(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kBool, x->dims));
  for (size_t k = 0; k < y.i.size(); ++k) y.i[k] = std::isnan(x->f[k]) ? 1 : 0;
  return One(std::move(y));
}

Result<Arrays> IsInf(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kBool, x->dims));
  const bool negative = c.Int("detect_negative", 1) != 0, positive = c.Int("detect_positive", 1) != 0;
  for (size_t k = 0; k < y.i.size(); ++k) y.i[k] = std::isinf(x->f[k]) && (x->f[k] < 0 ? negative : positive) ? 1 : 0;
  return One(std::move(y));
}

Result<Arrays> Not(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kBool));
  Array y = *x;
  for (int64_t& v : y.i) v = 1 - v;
  return One(std::move(y));
}

Result<Arrays> Identity(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  return One(*x);
}

}  // namespace slm::reference
