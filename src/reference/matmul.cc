// MatMul, Gemm and the integer products.
#include <cmath>

#include "reference/call.h"

namespace slm::reference {
namespace {

// numpy.matmul: vectors get a dimension that is taken away again, the dimensions before the last two are broadcast.
struct Product {
  Dims a, b, batch, out;
  int64_t m = 1, n = 1, k = 1;
};

Result<Product> ProductOf(const Call& c, const Dims& a, const Dims& b) {
  if (a.empty() || b.empty()) return Wrong("a product of scalars");
  Product p{a, b, {}, {}};
  if (a.size() == 1) p.a.insert(p.a.begin(), 1);
  if (b.size() == 1) p.b.push_back(1);
  p.m = p.a[p.a.size() - 2];
  p.k = p.a.back();
  p.n = p.b.back();
  if (p.b[p.b.size() - 2] != p.k) return Wrong("shapes " + onnx::ShapeText(a) + " and " + onnx::ShapeText(b) + " do not multiply");
  SLM_ASSIGN_OR_RETURN(p.batch, BroadcastShape(Dims(p.a.begin(), p.a.end() - 2), Dims(p.b.begin(), p.b.end() - 2)));
  p.out = p.batch;
  if (a.size() > 1) p.out.push_back(p.m);
  if (b.size() > 1) p.out.push_back(p.n);
  SLM_ASSIGN_OR_RETURN(const int64_t work, Count(p.out));
  SLM_RETURN_IF_ERROR(c.Count(work, p.k));
  return p;
}

// left(index), right(index) give the values as doubles; store(index, sum).
template <class L, class R, class S>
void Multiply(const Product& p, L left, R right, S store) {
  const Dims a(p.a.begin(), p.a.end() - 2), b(p.b.begin(), p.b.end() - 2);
  Walk(p.batch, {BroadcastStrides(a, p.batch), BroadcastStrides(b, p.batch)}, [&](int64_t at, const Dims& from) {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k) sum += left(from[0] * p.m * p.k + i * p.k + k) * right(from[1] * p.k * p.n + k * p.n + j);
        store((at * p.m + i) * p.n + j, sum);
      }
  });
}

// Zero points of the rows of a or of the columns of b: one for all, or one each.
Result<std::vector<double>> ZeroPoints(const Array* zero, const Array& of, int64_t lines) {
  std::vector<double> out(static_cast<size_t>(lines), 0);
  if (!zero) return out;
  if (zero->type != of.type || (zero->size() != 1 && zero->size() != lines)) return Wrong("a zero point that does not fit");
  for (int64_t k = 0; k < lines; ++k) out[static_cast<size_t>(k)] = Number(*zero, zero->size() == 1 ? 0 : k);
  return out;
}

}  // namespace

Result<Array> MatMulArrays(const Call& c, const Array& a, const Array& b, ElementType out) {
  SLM_ASSIGN_OR_RETURN(const Product p, ProductOf(c, a.dims, b.dims));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(out, p.out));
  Multiply(
      p, [&](int64_t i) { return Number(a, i); }, [&](int64_t i) { return Number(b, i); }, [&](int64_t i, double sum) { Set(y, i, sum); });
  return y;
}

Result<CodeSums> MultiplyCodes(const Call& c, const Array& a, const Array* a_zero, const Array& b, const Array* b_zero) {
  if (onnx::Info(a.type).bits > 8 || onnx::Info(b.type).bits > 8) return Refuse("codes of more than 8 bits");
  SLM_ASSIGN_OR_RETURN(const Product p, ProductOf(c, a.dims, b.dims));
  SLM_ASSIGN_OR_RETURN(const auto rows, ZeroPoints(a_zero, a, p.m));
  SLM_ASSIGN_OR_RETURN(const auto columns, ZeroPoints(b_zero, b, p.n));
  SLM_ASSIGN_OR_RETURN(const int64_t n, Count(p.out));
  CodeSums sums{std::vector<double>(static_cast<size_t>(n)), p.out, p.n};
  Multiply(
      p, [&](int64_t i) { return Number(a, i) - rows[static_cast<size_t>(i / p.k % p.m)]; },
      [&](int64_t i) { return Number(b, i) - columns[static_cast<size_t>(i % p.n)]; },
      [&](int64_t i, double sum) { sums.values[static_cast<size_t>(i)] = sum; });
  return sums;
}

Result<Arrays> MatMul(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kNumber));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kNumber));
  if (a->type != b->type) return Wrong("inputs of different types");
  if (!IsFloat(a->type) && onnx::Info(a->type).bits > 32) return Refuse("a product of 64-bit integers");  // sums are held in double
  SLM_ASSIGN_OR_RETURN(Array y, MatMulArrays(c, *a, *b, a->type));
  return One(std::move(y));
}

Result<Arrays> Gemm(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kFloat));
  const Array* bias = c.Optional(2);
  if (a->dims.size() != 2 || b->dims.size() != 2 || a->type != b->type || (bias && bias->type != a->type))
    return Wrong("not two matrices of a type");
  const bool turn_a = c.Int("transA", 0) != 0, turn_b = c.Int("transB", 0) != 0;
  const int64_t m = a->dims[turn_a ? 1 : 0], k = a->dims[turn_a ? 0 : 1], n = b->dims[turn_b ? 0 : 1];
  if (b->dims[turn_b ? 1 : 0] != k) return Wrong("the matrices do not multiply");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(a->type, {m, n}));
  SLM_RETURN_IF_ERROR(c.Count(y.size(), k));
  Dims steps{0, 0};
  if (bias) {
    SLM_ASSIGN_OR_RETURN(const Dims joined, BroadcastShape(bias->dims, y.dims));
    if (joined != y.dims) return Wrong("the bias does not broadcast to the product");
    steps = BroadcastStrides(bias->dims, y.dims);
  }
  const double alpha = c.Float("alpha", 1), beta = c.Float("beta", 1);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += a->f[static_cast<size_t>(turn_a ? l * m + i : i * k + l)] * b->f[static_cast<size_t>(turn_b ? j * k + l : l * n + j)];
      Set(y, i * n + j, alpha * sum + (bias ? beta * bias->f[static_cast<size_t>(i * steps[0] + j * steps[1])] : 0));
    }
  return One(std::move(y));
}

Result<Arrays> MatMulInteger(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const CodeSums sums, MultiplyCodes(c, *a, c.Optional(2), *b, c.Optional(3)));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(ElementType::kInt32, sums.dims));
  for (int64_t k = 0; k < y.size(); ++k) Set(y, k, sums.values[static_cast<size_t>(k)]);
  return One(std::move(y));
}

// a, its scale and zero point, b, its scale and zero point, scale and zero point of the result.
Result<Arrays> QLinearMatMul(const Call& c) {
  for (const size_t k : {1, 4, 6}) {
    SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(k, Accept::kFloat));
    if (scale->size() != 1 && k != 4) return Refuse("a scale for each row");
  }
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(3, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* zero, c.In(7, Accept::kInteger));
  if (zero->size() != 1 || onnx::Info(zero->type).bits > 8) return Refuse("a result's zero point that is not one code of 8 bits");
  SLM_ASSIGN_OR_RETURN(const CodeSums sums, MultiplyCodes(c, *a, c.Optional(2), *b, c.Optional(5)));
  const Array& b_scale = *c.Optional(4);
  if (b_scale.size() != 1 && b_scale.size() != sums.n) return Wrong("a scale that does not fit");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(zero->type, sums.dims));
  for (int64_t k = 0; k < y.size(); ++k) {
    const double factor = Number(*c.Optional(1), 0) * Number(b_scale, b_scale.size() == 1 ? 0 : k % sums.n) / Number(*c.Optional(6), 0);
    const double code = std::nearbyint(sums.values[static_cast<size_t>(k)] * factor) + Number(*zero, 0);
    Set(y, k, std::fmin(std::fmax(code, static_cast<double>(LowestOf(y.type))), static_cast<double>(HighestOf(y.type))));
  }
  return One(std::move(y));
}

namespace {

// Sums of codes times both scales, plus the bias. `b_scale`: one value, or one a column.
Result<Array> Scaled(const CodeSums& sums, double a_scale, const Array& b_scale, const Array* bias) {
  if ((b_scale.size() != 1 && b_scale.size() != sums.n) || (bias && (!IsFloat(bias->type) || bias->size() != sums.n)))
    return Wrong("a scale or bias that does not fit");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(b_scale.type, sums.dims));
  for (int64_t k = 0; k < y.size(); ++k)
    Set(y, k,
        sums.values[static_cast<size_t>(k)] * a_scale * Number(b_scale, b_scale.size() == 1 ? 0 : k % sums.n) +
            (bias ? Number(*bias, k % sums.n) : 0));
  return y;
}

}  // namespace

// Activations rounded to 8 bits as DynamicQuantizeLinear does, times codes of 8 bits.
Result<Arrays> DynamicQuantizeMatMul(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b_scale, c.In(2, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Arrays codes, DynamicQuantizeLinear(c));
  SLM_ASSIGN_OR_RETURN(const CodeSums sums, MultiplyCodes(c, codes[0], &codes[2], *b, c.Optional(3)));
  SLM_ASSIGN_OR_RETURN(Array y, Scaled(sums, codes[1].f[0], *b_scale, c.Optional(4)));
  return One(std::move(y));
}

// A, B, their scales, their zero points, bias
Result<Arrays> MatMulIntegerToFloat(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* a_scale, c.In(2, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* b_scale, c.In(3, Accept::kFloat));
  if (a_scale->size() != 1) return Refuse("a scale for each row");
  SLM_ASSIGN_OR_RETURN(const CodeSums sums, MultiplyCodes(c, *a, c.Optional(4), *b, c.Optional(5)));
  SLM_ASSIGN_OR_RETURN(Array y, Scaled(sums, Number(*a_scale, 0), *b_scale, c.Optional(6)));
  return One(std::move(y));
}

// Products of 16-bit integers, wrapped to 32 bits.
Result<Arrays> MatMulInteger16(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kInteger));
  if (onnx::Info(a->type).bits > 16 || onnx::Info(b->type).bits > 16) return Refuse("codes of more than 16 bits");
  SLM_ASSIGN_OR_RETURN(Array y, MatMulArrays(c, *a, *b, a->type == ElementType::kUint16 ? ElementType::kUint32 : ElementType::kInt32));
  return One(std::move(y));
}

}  // namespace slm::reference
