// The slow law of the graph: executes any graph in f64 with plain loops, straight from the operators' definitions in ops.inc.
// Test-only, and independent of the builder, the passes and every kernel: it shares nothing with them but the data structures.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "graph/graph.h"
#include "graph/testing/definitions.h"

namespace slm::graph::testing {

class Interpreter {
 public:
  explicit Interpreter(const Graph& g) : g_(g) {}

  // Logits [T, V] of the next tokens of the sequence; keys and values of earlier calls stay.
  Array Run(const std::vector<int>& tokens) {
    tokens_ = tokens;
    values_.assign(g_.values.size(), {});
    for (const Node& n : g_.nodes) Step(n);
    position_ += static_cast<int>(tokens.size());
    return values_[g_.output_logits];
  }

 private:
  // A constant, decoded once, or a computed value.
  const Array& In(const Node& n, size_t i) {
    const ValueId id = n.inputs[i];
    if (!g_.IsConstant(id)) return values_[id];
    auto [it, is_new] = constants_.try_emplace(id);
    if (!is_new) return it->second;
    const Constant& c = *g_.values[id].constant;
    it->second.assign(c.data.begin(), c.data.end());
    for (const ConstantPart& p : c.parts) {
      const std::vector<float> all = model::DequantizeAll(*p.tensor);
      const int64_t row = p.tensor->n_values() / p.tensor->dims[0];
      it->second.insert(it->second.end(), all.begin() + p.row_begin * row, all.begin() + p.row_end * row);
    }
    return it->second;
  }
  const Shape& InShape(const Node& n, size_t i) const { return g_.values[n.inputs[i]].shape; }
  Array& Out(const Node& n, size_t i = 0) { return values_[n.outputs[i]]; }
  int64_t Dim(int64_t d) const { return d == kT ? static_cast<int64_t>(tokens_.size()) : d; }
  int64_t Count(const Shape& s) const {
    int64_t n = 1;
    for (int64_t d : s) n *= Dim(d);
    return n;
  }

  void Step(const Node& n) {
    switch (n.op) {
      case Op::kGather: return Gather(n);
      case Op::kGemm: return Gemm(n);
      case Op::kAdd: return Binary(n, [](double a, double b) { return a + b; });
      case Op::kMul: return Binary(n, [](double a, double b) { return a * b; });
      case Op::kDiv: return Binary(n, [](double a, double b) { return a / b; });
      case Op::kTanh: return Unary(n, Tanh);
      case Op::kSigmoid: return Unary(n, Sigmoid);
      case Op::kSwish: return Unary(n, Silu);
      case Op::kGelu: return Unary(n, n.String(AttrKey::kApproximate) == "tanh" ? GeluTanh : GeluErf);
      case Op::kReshape: Out(n) = In(n, 0); return;
      case Op::kSplit: return Split(n);
      case Op::kRmsNorm: Out(n) = RmsNorm(In(n, 0), In(n, 1), n.Float(AttrKey::kEpsilon)); return;
      case Op::kRotary: Out(n) = Rotate(n, In(n, 0), n.Int(AttrKey::kNumHeads), 1); return;
      case Op::kGroupQueryAttention: return Attention(n);
      case Op::kSkipRmsNorm: {
        Array sum = In(n, 0);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += In(n, 1)[i];
        Out(n, 0) = RmsNorm(sum, In(n, 2), n.Float(AttrKey::kEpsilon));
        Out(n, 1) = std::move(sum);
        return;
      }
      case Op::kGatedActivation: return Gated(n);
      case Op::kCount: break;
    }
    SLM_ASSERT(false);
  }

  void Gather(const Node& n) {
    const int64_t width = InShape(n, 0)[1];
    for (int id : tokens_)
      for (int64_t i = 0; i < width; ++i) Out(n).push_back(In(n, 0)[id * width + i]);
  }

  void Gemm(const Node& n) {
    const Array &x = In(n, 0), &w = In(n, 1);
    const int64_t rows = InShape(n, 1)[0], k = InShape(n, 1)[1];
    for (int64_t t = 0; t < static_cast<int64_t>(x.size()) / k; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        double sum = n.inputs.size() > 2 && n.inputs[2] != kNoValue ? In(n, 2)[r] : 0;
        for (int64_t i = 0; i < k; ++i) sum += x[t * k + i] * w[r * k + i];
        Out(n).push_back(sum);
      }
    }
  }

  // Broadcasts by explicit coordinates.
  template <class F>
  void Binary(const Node& n, F f) {
    const Shape& shape = g_.values[n.outputs[0]].shape;
    const int64_t count = Count(shape);
    for (int64_t flat = 0; flat < count; ++flat) Out(n).push_back(f(At(n, 0, shape, flat), At(n, 1, shape, flat)));
  }
  double At(const Node& n, size_t input, const Shape& out, int64_t flat) {
    const Shape& s = InShape(n, input);
    int64_t index = 0, stride = 1;
    for (size_t back = 1; back <= s.size(); ++back) {
      const int64_t size = Dim(out[out.size() - back]), mine = Dim(s[s.size() - back]);
      index += (mine == 1 ? 0 : flat % size) * stride;
      flat /= size;
      stride *= mine;
    }
    return In(n, input)[index];
  }
  template <class F>
  void Unary(const Node& n, F f) {
    for (double x : In(n, 0)) Out(n).push_back(f(x));
  }

  void Split(const Node& n) {
    const int64_t width = InShape(n, 0).back(), rows = static_cast<int64_t>(In(n, 0).size()) / width;
    int64_t at = 0;
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      const int64_t part = g_.values[n.outputs[o]].shape.back();
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < part; ++i) Out(n, o).push_back(In(n, 0)[r * width + at + i]);
      at += part;
    }
  }

  // x [T, heads * D] with the tables at inputs `cos` and `cos + 1`.
  Array Rotate(const Node& n, Array x, int64_t heads, size_t cos) {
    const int64_t half = InShape(n, cos)[1], d = static_cast<int64_t>(x.size() / tokens_.size()) / heads;
    const bool pairs = n.Int(AttrKey::kInterleaved) == 1;
    for (size_t t = 0; t < tokens_.size(); ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        double* head = &x[(t * heads + h) * d];
        for (int64_t i = 0; i < half; ++i) {
          const double c = In(n, cos)[(position_ + t) * half + i], s = In(n, cos + 1)[(position_ + t) * half + i];
          double &a = head[pairs ? 2 * i : i], &b = head[pairs ? 2 * i + 1 : i + half];
          const double a0 = a;
          a = a0 * c - b * s;
          b = b * c + a0 * s;
        }
      }
    }
    return x;
  }

  void Attention(const Node& n) {
    const int64_t hq = n.Int(AttrKey::kNumHeads), hkv = n.Int(AttrKey::kKvNumHeads), d = InShape(n, kGqaQuery)[1] / hq;
    Array q = In(n, kGqaQuery), k = In(n, kGqaKey);
    if (n.Int(AttrKey::kDoRotary)) {
      q = Rotate(n, q, hq, kGqaCos);
      k = Rotate(n, k, hkv, kGqaCos);
    }
    KvRows& cache = caches_[static_cast<int>(n.Int(AttrKey::kLayer))];
    cache.k.insert(cache.k.end(), k.begin(), k.end());
    cache.v.insert(cache.v.end(), In(n, kGqaValue).begin(), In(n, kGqaValue).end());
    Out(n).assign(q.size(), 0);
    const int64_t window = n.Int(AttrKey::kLocalWindow, -1);
    for (int64_t t = 0; t < static_cast<int64_t>(tokens_.size()); ++t) {
      const int64_t last = position_ + t, first = window > 0 ? std::max<int64_t>(0, last - window + 1) : 0;
      for (int64_t h = 0; h < hq; ++h)
        AttendHead(&q[(t * hq + h) * d], cache,
                   {first, last, h / (hq / hkv) * d, hkv * d, d, n.Float(AttrKey::kScale), n.Float(AttrKey::kSoftcap)},
                   &Out(n)[(t * hq + h) * d]);
    }
  }

  void Gated(const Node& n) {
    const int64_t f = InShape(n, 0)[1] / 2;
    const auto kind = static_cast<model::Activation>(n.Int(AttrKey::kActivation));
    const auto act = kind == model::Activation::kSilu ? Silu : kind == model::Activation::kGeluTanh ? GeluTanh : GeluErf;
    const Array& x = In(n, 0);
    for (size_t t = 0; t < tokens_.size(); ++t)
      for (int64_t i = 0; i < f; ++i) Out(n).push_back(act(x[t * 2 * f + i]) * x[t * 2 * f + f + i]);
  }

  const Graph& g_;
  std::vector<int> tokens_;
  int position_ = 0;
  std::vector<Array> values_;
  std::map<ValueId, Array> constants_;
  std::map<int, KvRows> caches_;
};

}  // namespace slm::graph::testing
