// com.microsoft's operators on codes of 8 bits: the values that codes stand for, the operator, the nearest code again. After onnxruntime's
// docs/ContribOperators.md.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/call.h"

namespace slm::reference {
namespace {

Result<double> OneNumber(const Call& c, size_t at) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(at, Accept::kNumber));
  if (a->size() != 1) return Refuse("a scale or zero point for each channel");
  return Number(*a, 0);
}

// Codes at input `at`, their scale and zero point at the next two.
Result<Array> Values(const Call& c, size_t at) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(at, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const double scale, OneNumber(c, at + 1));
  double zero = 0;
  if (c.Optional(at + 2)) {
    SLM_ASSIGN_OR_RETURN(zero, OneNumber(c, at + 2));
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kDouble, x->dims));
  for (int64_t k = 0; k < y.size(); ++k) y.f[static_cast<size_t>(k)] = (Number(*x, k) - zero) * scale;
  return y;
}

// The nearest codes by the scale at input `at` and the zero point behind it, or of `otherwise` without one.
Result<Arrays> Codes(const Call& c, const Array& x, size_t at, ElementType otherwise) {
  SLM_ASSIGN_OR_RETURN(const double scale, OneNumber(c, at));
  double zero = 0;
  ElementType type = otherwise;
  if (c.Optional(at + 1)) {
    SLM_ASSIGN_OR_RETURN(zero, OneNumber(c, at + 1));
    type = c.Optional(at + 1)->type;
  }
  if (!IsInteger(type) || onnx::Info(type).bits > 16) return Refuse("codes of more than 16 bits");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, x.dims));
  const double low = static_cast<double>(LowestOf(type)), high = static_cast<double>(HighestOf(type));
  for (int64_t k = 0; k < y.size(); ++k)
    Set(y, k, std::fmin(std::fmax(std::nearbyint(RoundTo(ElementType::kFloat, Number(x, k) / scale)) + zero, low), high));
  return One(std::move(y));
}

template <class F>
Result<Arrays> OfTwo(const Call& c, F f) {
  SLM_ASSIGN_OR_RETURN(const Array a, Values(c, 0));
  SLM_ASSIGN_OR_RETURN(const Array b, Values(c, 3));
  SLM_ASSIGN_OR_RETURN(const Dims dims, BroadcastShape(a.dims, b.dims));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kDouble, dims));
  Walk(dims, {BroadcastStrides(a.dims, dims), BroadcastStrides(b.dims, dims)}, [&](int64_t at, const Dims& from) {
    y.f[static_cast<size_t>(at)] = f(a.f[static_cast<size_t>(from[0])], b.f[static_cast<size_t>(from[1])]);
  });
  return Codes(c, y, 6, c.Optional(0)->type);
}

template <class F>
Result<Arrays> OfOne(const Call& c, F f) {
  SLM_ASSIGN_OR_RETURN(Array x, Values(c, 0));
  for (double& v : x.f) v = f(v);
  return Codes(c, x, 3, c.Optional(0)->type);
}

}  // namespace

Result<Arrays> QLinearAdd(const Call& c) {
  return OfTwo(c, [](double a, double b) { return a + b; });
}
Result<Arrays> QLinearMul(const Call& c) {
  return OfTwo(c, [](double a, double b) { return a * b; });
}
Result<Arrays> QLinearSigmoid(const Call& c) {
  return OfOne(c, [](double v) { return 1 / (1 + std::exp(-v)); });
}
Result<Arrays> QLinearLeakyRelu(const Call& c) {
  const double alpha = c.Float("alpha", 0.01);
  return OfOne(c, [alpha](double v) { return v < 0 ? alpha * v : v; });
}

// Attribute "opset" tells which Softmax: of one axis from 13 on, of all dimensions from the axis on before.
Result<Arrays> QLinearSoftmax(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array x, Values(c, 0));
  SLM_ASSIGN_OR_RETURN(const Arrays y, Softmax(Call(c.node(), c.Int("opset", 13), {&x})));
  return Codes(c, y[0], 3, c.Optional(0)->type);
}

Result<Arrays> QLinearReduceMean(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array x, Values(c, 0));
  SLM_ASSIGN_OR_RETURN(const Arrays y, ReduceMean(Call(c.node(), c.opset(), {&x})));
  return Codes(c, y[0], 3, c.Optional(0)->type);
}

// condition, then two times codes, scale and zero point, then those of the result
Result<Arrays> QLinearWhere(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* condition, c.In(0, Accept::kBool));
  SLM_ASSIGN_OR_RETURN(const Array a, Values(c, 1));
  SLM_ASSIGN_OR_RETURN(const Array b, Values(c, 4));
  SLM_ASSIGN_OR_RETURN(const Arrays y, Where(Call(c.node(), c.opset(), {condition, &a, &b})));
  return Codes(c, y[0], 7, c.Optional(1)->type);
}

// The result's scale and zero point, then codes, scale and zero point of each part
Result<Arrays> QLinearConcat(const Call& c) {
  Arrays parts;
  for (size_t at = 2; at + 1 < c.n_inputs(); at += 3) {
    SLM_ASSIGN_OR_RETURN(Array part, Values(c, at));
    parts.push_back(std::move(part));
  }
  std::vector<const Array*> inputs;
  for (const Array& part : parts) inputs.push_back(&part);
  if (inputs.empty() || (c.n_inputs() - 2) % 3 != 0) return Wrong("codes, scale and zero point of each part are needed");
  SLM_ASSIGN_OR_RETURN(const Arrays y, Concat(Call(c.node(), c.opset(), std::move(inputs))));
  return Codes(c, y[0], 0, c.Optional(2)->type);
}

// A, its scale and zero point, B, its scale and zero point, C of whole numbers, the result's scale and zero point
Result<Arrays> QGemm(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(3, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b_scale, c.In(4, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const double a_scale, OneNumber(c, 1));
  if (a->dims.size() != 2 || b->dims.size() != 2) return Wrong("not two matrices");
  const onnx::Node plain;  // a Transpose without perm
  Arrays left{*a}, right{*b};
  if (c.Int("transA", 0) != 0) {
    SLM_ASSIGN_OR_RETURN(left, Transpose(Call(plain, c.opset(), {a})));
  }
  if (c.Int("transB", 0) != 0) {
    SLM_ASSIGN_OR_RETURN(right, Transpose(Call(plain, c.opset(), {b})));
  }
  SLM_ASSIGN_OR_RETURN(const CodeSums sums, MultiplyCodes(c, left[0], c.Optional(2), right[0], c.Optional(5)));
  if (b_scale->size() != 1 && b_scale->size() != sums.n) return Wrong("a scale that does not fit");
  Array more;
  if (c.Optional(6)) {
    SLM_ASSIGN_OR_RETURN(const Array* given, c.In(6, Accept::kIndex));
    SLM_ASSIGN_OR_RETURN(more, BroadcastTo(*given, sums.dims));
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kDouble, sums.dims));
  const double alpha = c.Float("alpha", 1);
  for (int64_t k = 0; k < y.size(); ++k) {
    const double sum = sums.values[static_cast<size_t>(k)] + (c.Optional(6) ? Number(more, k) : 0);
    y.f[static_cast<size_t>(k)] = alpha * a_scale * Number(*b_scale, b_scale->size() == 1 ? 0 : k % sums.n) * sum;
  }
  if (c.Optional(7)) return Codes(c, y, 7, ElementType::kUint8);
  SLM_ASSIGN_OR_RETURN(Array f, CastTo(y, b_scale->type, Saturate::kYes, ""));
  return One(std::move(f));
}

// Table rows as codes with a scale and zero point each; otherwise EmbedLayerNormalization.
Result<Arrays> QEmbedLayerNormalization(const Call& c) {
  // Codes of words, positions, segments, gamma, beta; scales from input 8 on, zero points from 13 on.
  constexpr size_t kCodes[] = {2, 3, 4, 5, 6};
  Array tables[5];
  std::vector<const Array*> inputs{c.Optional(0), c.Optional(1)};
  for (size_t k = 0; k < 5; ++k) {
    if (k == 2 && !c.Optional(kCodes[k])) {
      inputs.push_back(nullptr);
      continue;
    }
    SLM_ASSIGN_OR_RETURN(const Array* x, c.In(kCodes[k], Accept::kInteger));
    SLM_ASSIGN_OR_RETURN(const double scale, OneNumber(c, 8 + k));
    SLM_ASSIGN_OR_RETURN(const double zero, OneNumber(c, 13 + k));
    SLM_ASSIGN_OR_RETURN(tables[k], Zeros(ElementType::kFloat, x->dims));
    for (int64_t i = 0; i < x->size(); ++i) Set(tables[k], i, (Number(*x, i) - zero) * scale);
    inputs.push_back(&tables[k]);
  }
  inputs.push_back(c.Optional(7));
  return EmbedLayerNormalization(Call(c.node(), c.opset(), std::move(inputs)));
}

}  // namespace slm::reference
