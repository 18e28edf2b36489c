// com.microsoft's operators that stand for two or three of ONNX, after onnxruntime's docs/ContribOperators.md: activations and products
// with what comes before or behind them, BERT's embedding, gates.
#include <cmath>
#include <numbers>

#include "reference/call.h"

namespace slm::reference {
namespace {

double GeluErf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }
double SoftplusOf(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// The bias is a vector of the last dimension.
Status CheckBias(const Array& x, const Array& bias) {
  if (x.dims.empty() || bias.dims != Dims{x.dims.back()} || bias.type != x.type) return Wrong("the bias does not fit the input");
  return Ok();
}

struct Biased {
  const Array *x, *bias;
};
Result<Biased> BiasedOf(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* bias, c.In(1, Accept::kFloat));
  SLM_RETURN_IF_ERROR(CheckBias(*x, *bias));
  return Biased{x, bias};
}

onnx::Attribute Named(const char* name, onnx::Attribute::Kind kind) {
  onnx::Attribute a;
  a.name = name;
  a.kind = kind;
  return a;
}

// A matrix that is turned as two attributes say: its first dimension goes behind the batch's; its last two change places.
Result<Array> Turned(const Call& c, const Array& x, const char* batch_attribute, const char* last_attribute) {
  const size_t rank = x.dims.size();
  const bool batch = c.Int(batch_attribute, 0) != 0, last = c.Int(last_attribute, 0) != 0;
  if (rank < 2 || (!batch && !last)) return x;
  Dims perm;
  for (size_t k = 0; k < rank; ++k) perm.push_back(static_cast<int64_t>(k));
  if (batch) {
    perm.erase(perm.begin());
    perm.insert(perm.end() - 1, 0);
  }
  if (last) std::swap(perm[rank - 1], perm[rank - 2]);
  onnx::Node node;
  onnx::Attribute& a = node.attributes.emplace_back(Named("perm", onnx::Attribute::Kind::kInts));
  a.ints = std::move(perm);
  SLM_ASSIGN_OR_RETURN(Arrays y, Transpose(Call(node, c.opset(), {&x})));
  return std::move(y[0]);
}

// One of ONNX's activations by the name that an attribute gives.
Result<Arrays> Activated(const Call& c, Array y) {
  static constexpr struct {
    const char* name;
    Operator function;
  } kKnown[] = {
      {"Relu", Relu},         {"LeakyRelu", LeakyRelu}, {"Tanh", Tanh}, {"Sigmoid", Sigmoid}, {"HardSigmoid", HardSigmoid},
      {"Softplus", Softplus}, {"Softsign", Softsign},   {"Elu", Elu},   {"Selu", Selu},       {"ThresholdedRelu", ThresholdedRelu}};
  const std::string name = c.Text("activation", "");
  if (name.empty()) return One(std::move(y));
  onnx::Node node;
  for (const auto& [own, theirs] :
       {std::pair{"activation_alpha", "alpha"}, std::pair{"activation_beta", "beta"}, std::pair{"activation_gamma", "gamma"}})
    if (c.Has(own)) {
      onnx::Attribute& a = node.attributes.emplace_back(Named(theirs, onnx::Attribute::Kind::kFloat));
      a.floats = {static_cast<float>(c.Float(own, 0))};
    }
  for (const auto& known : kKnown)
    if (name == known.name) return known.function(Call(node, c.opset(), {&y}));
  return Refuse("activation '" + name + "'");
}

Result<Array> TurnedProduct(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* b, c.In(1, Accept::kFloat));
  if (a->type != b->type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(const Array left, Turned(c, *a, "transBatchA", "transA"));
  SLM_ASSIGN_OR_RETURN(const Array right, Turned(c, *b, "transBatchB", "transB"));
  SLM_ASSIGN_OR_RETURN(const Array sums, MatMulArrays(c, left, right, ElementType::kDouble));
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(a->type, sums.dims));
  const double alpha = c.Float("alpha", 1);
  for (int64_t k = 0; k < y.size(); ++k) Set(y, k, alpha * Number(sums, k));
  return y;
}

// Rows of a table by ids, as `dims` with the table's width behind; -1 in `ids` is not allowed.
Status AddRows(Array& y, const Array& table, const std::vector<int64_t>& ids) {
  const int64_t width = y.dims.back();
  if (table.dims.size() != 2 || table.dims[1] != width || table.type != y.type || ids.empty()) return Wrong("a table that does not fit");
  const int64_t n = static_cast<int64_t>(ids.size());
  for (const int64_t id : ids)
    if (id < 0 || id >= table.dims[0]) return Wrong(fmt::format("row {} of {}", id, table.dims[0]));
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t row = ids[static_cast<size_t>(k / width % n)];
    y.f[static_cast<size_t>(k)] += Number(table, row * width + k % width);
  }
  return Ok();
}

}  // namespace

Result<Arrays> BiasGelu(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Biased in, BiasedOf(c));
  Array y = *in.x;
  for (size_t k = 0; k < y.f.size(); ++k) y.f[k] = RoundTo(y.type, GeluErf(y.f[k] + in.bias->f[k % in.bias->f.size()]));
  return One(std::move(y));
}

// The left half of x + bias times the GELU of the right half.
Result<Arrays> BiasSplitGelu(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Biased in, BiasedOf(c));
  const int64_t width = in.x->dims.back(), half = width / 2;
  if (width % 2 != 0) return Wrong("a last dimension that has no halves");
  Dims dims = in.x->dims;
  dims.back() = half;
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(in.x->type, dims));
  for (int64_t k = 0; k < y.size(); ++k) {
    const int64_t left = k / half * width + k % half;
    const auto at = [&](int64_t i) { return Number(*in.x, i) + Number(*in.bias, i % width); };
    Set(y, k, at(left) * GeluErf(at(left + half)));
  }
  return One(std::move(y));
}

Result<Arrays> BiasAdd(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Biased in, BiasedOf(c));
  SLM_ASSIGN_OR_RETURN(const Array* skip, c.In(2, Accept::kFloat));
  if (skip->dims != in.x->dims || skip->type != in.x->type) return Wrong("inputs of different types or shapes");
  Array y = *in.x;
  for (size_t k = 0; k < y.f.size(); ++k) y.f[k] = RoundTo(y.type, y.f[k] + in.bias->f[k % in.bias->f.size()] + skip->f[k]);
  return One(std::move(y));
}

// The bias is broadcast over the dimensions before `axis`: the inner ones of them, or the outer ones.
Result<Arrays> BiasSoftmax(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* bias, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(c.Int("axis", 1), x->dims.size()));
  if (bias->type != x->type) return Wrong("inputs of different types");
  SLM_ASSIGN_OR_RETURN(const Array wide, BroadcastTo(*bias, x->dims));
  Array y = *x;
  int64_t width = 1;
  for (size_t k = static_cast<size_t>(axis); k < x->dims.size(); ++k) width *= x->dims[k];
  for (size_t k = 0; k < y.f.size(); ++k) y.f[k] += wide.f[k];
  for (int64_t begin = 0; begin < y.size(); begin += width) SoftmaxRow(y.f.data() + begin, width);
  for (double& v : y.f) v = RoundTo(y.type, v);
  return One(std::move(y));
}

// Also TransposeMatMul.
Result<Arrays> FusedMatMul(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Array y, TurnedProduct(c));
  return One(std::move(y));
}

Result<Arrays> FusedMatMulActivation(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Array y, TurnedProduct(c));
  if (c.Text("activation", "") != "Softmax") return Activated(c, std::move(y));
  onnx::Node node;
  onnx::Attribute& a = node.attributes.emplace_back(Named("axis", onnx::Attribute::Kind::kInt));
  a.ints = {c.Int("activation_axis", -1)};
  return Softmax(Call(node, 13, {&y}));
}

Result<Arrays> FusedGemm(const Call& c) {
  SLM_ASSIGN_OR_RETURN(Arrays y, Gemm(c));
  return Activated(c, std::move(y[0]));
}

// X W, then FastGelu with the bias.
Result<Arrays> GemmFastGelu(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Arrays y, MatMul(c));
  const onnx::Node node;
  return FastGelu(Call(node, c.opset(), {&y[0], c.Optional(2)}));
}

// input_ids, segment_ids, the tables of words, positions and segments, gamma, beta, mask, position_ids
Result<Arrays> EmbedLayerNormalization(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* ids, c.In(0, Accept::kIndex));
  SLM_ASSIGN_OR_RETURN(const Array* words, c.In(2, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* positions, c.In(3, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* gamma, c.In(5, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* beta, c.In(6, Accept::kFloat));
  const Array *segments = c.Optional(1), *segment_table = c.Optional(4), *mask = c.Optional(7);
  if (ids->dims.size() != 2 || words->dims.size() != 2) return Wrong("input_ids are [B, T], and the words a matrix");
  const int64_t batch = ids->dims[0], tokens = ids->dims[1];
  SLM_ASSIGN_OR_RETURN(Array sum, Zeros(words->type, {batch, tokens, words->dims[1]}));
  std::vector<int64_t> places;
  for (int64_t t = 0; t < tokens; ++t) places.push_back(t);
  if (c.Optional(8)) {
    SLM_ASSIGN_OR_RETURN(places, c.Ints(8));
    if (c.Optional(8)->dims != Dims{batch, tokens} && c.Optional(8)->dims != Dims{1, tokens})
      return Wrong("position_ids do not fit input_ids");
  }
  SLM_ASSIGN_OR_RETURN(Array mask_index, Zeros(ElementType::kInt32, {batch}));
  if (sum.size() > 0) {
    SLM_RETURN_IF_ERROR(AddRows(sum, *words, ids->i));
    SLM_RETURN_IF_ERROR(AddRows(sum, *positions, places));
    if (segments && segment_table) {
      SLM_ASSIGN_OR_RETURN(const auto kinds, c.Ints(1));
      if (segments->dims != ids->dims || !IsFloat(segment_table->type)) return Wrong("segment_ids do not fit input_ids");
      SLM_RETURN_IF_ERROR(AddRows(sum, *segment_table, kinds));
    } else if (segments) {
      return Wrong("segment_ids without a table of segments");
    }
  }
  if (mask) {
    SLM_ASSIGN_OR_RETURN(const auto seen, c.Ints(7));
    if (mask->dims != ids->dims) return Wrong("the mask does not fit input_ids");
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < tokens; ++t) mask_index.i[static_cast<size_t>(b)] += seen[static_cast<size_t>(b * tokens + t)] == 1;
  }
  onnx::Node node;
  onnx::Attribute& a = node.attributes.emplace_back(Named("epsilon", onnx::Attribute::Kind::kFloat));
  a.floats = {static_cast<float>(c.Float("epsilon", 1e-12))};
  // The norm reads the sum before it is rounded.
  SLM_ASSIGN_OR_RETURN(Arrays normalized, LayerNormalization(Call(node, c.opset(), {&sum, gamma, beta})));
  for (double& v : sum.f) v = RoundTo(sum.type, v);
  return Arrays{std::move(normalized[0]), std::move(mask_index), std::move(sum)};
}

// Each run of `scale`'s length in the last dimension gets a mean square of 1, times the scale and the activated gate.
Result<Arrays> GatedRmsNorm(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* gate, c.In(2, Accept::kFloat));
  const std::string activation = c.Text("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid") return Refuse("activation '" + activation + "'");
  const int64_t width = scale->dims.size() == 1 ? scale->dims[0] : 0;
  if (width < 1 || x->dims.empty() || x->dims.back() % width != 0 || gate->dims != x->dims)
    return Wrong("scale or gate do not fit the input");
  const double epsilon = c.Float("epsilon", 1e-5);
  Array y = *x;
  for (int64_t begin = 0; begin < y.size(); begin += width) {
    double squares = 0;
    for (int64_t d = 0; d < width; ++d) squares += Number(*x, begin + d) * Number(*x, begin + d);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (int64_t d = 0; d < width; ++d) {
      const double g = Number(*gate, begin + d), opened = activation == "sigmoid" ? SigmoidOf(g) : g * SigmoidOf(g);
      Set(y, begin + d, Number(*x, begin + d) * factor * Number(*scale, d) * opened);
    }
  }
  return One(std::move(y));
}

// a, dt_bias, decay_scale, b: what LinearAttention's decay and beta are made of.
Result<Arrays> LinearAttentionGate(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* bias, c.In(1, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* scale, c.In(2, Accept::kFloat));
  const Array* b = c.Optional(3);
  const int64_t heads = a->dims.empty() ? 0 : a->dims.back();
  if (heads < 1 || bias->dims != Dims{heads} || scale->dims != Dims{heads} || (b && (!IsFloat(b->type) || b->dims != a->dims)))
    return Wrong("the gates do not have one value a head");
  Array decay = *a;
  for (int64_t k = 0; k < decay.size(); ++k)
    Set(decay, k, Number(*scale, k % heads) * SoftplusOf(Number(*a, k) + Number(*bias, k % heads)));
  if (!b) return One(std::move(decay));
  Array beta = *b;
  for (double& v : beta.f) v = RoundTo(beta.type, SigmoidOf(v));
  return Arrays{std::move(decay), std::move(beta)};
}

}  // namespace slm::reference
