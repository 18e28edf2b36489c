#include "backend/cpu/analysis.h"

#include <algorithm>

#include "backend/cpu/packed_matrix.h"

namespace slm::backend {
namespace {
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Op;
using graph::ValueId;

class Analyser {
 public:
  Analyser(const Graph& g, ComputeMode compute) : g_(g), compute_(compute) {
    const size_t nodes = g.nodes.size(), values = g.values.size();
    a_.absorbed.assign(nodes, 0);
    a_.into_activations.assign(nodes, 0);
    a_.accumulates.assign(nodes, -1);
    a_.segments.resize(nodes);
    a_.owner.resize(values);
    for (size_t v = 0; v < values; ++v) a_.owner[v] = static_cast<ValueId>(v);
    a_.column.assign(values, 0);
    a_.stored.assign(values, 1);
    a_.in_logits.assign(values, 0);
    a_.row_values.assign(values, 0);
    producer_.assign(values, -1);
    consumers_.resize(values);
    for (size_t i = 0; i < nodes; ++i) {
      for (ValueId v : g.nodes[i].outputs)
        if (v != kNoValue) producer_[v] = static_cast<int>(i);
      for (ValueId v : g.nodes[i].inputs)
        if (v != kNoValue && (consumers_[v].empty() || consumers_[v].back() != static_cast<int>(i)))
          consumers_[v].push_back(static_cast<int>(i));
    }
  }

  Analysis Run() {
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i)
      if (g_.nodes[i].op == Op::kGroupQueryAttention) a_.last_attention = i;
    MarkLogits();
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) Visit(i);
    return std::move(a_);
  }

 private:
  const Node& N(int i) const { return g_.nodes[i]; }
  int OnlyConsumer(ValueId v) const { return consumers_[v].size() == 1 && v != g_.output_logits ? consumers_[v][0] : -1; }
  // All uses of v are matrix products that take int8 activations, and no other such product stands between them and `from`.
  bool OnlyActivations(ValueId v, int from) const {
    if (v == g_.output_logits || consumers_[v].empty()) return false;
    for (int c : consumers_[v])
      if (N(c).op != Op::kGemm || N(c).inputs[0] != v || !TakesActivations(g_, N(c), compute_)) return false;
    for (int i = from + 1; i < consumers_[v].back(); ++i)
      if (N(i).op == Op::kGemm && N(i).inputs[0] != v) return false;
    return true;
  }

  // From the head's product on, values of one row per output row live in the logits buffer.
  void MarkLogits() {
    if (g_.output_logits == kNoValue) return;  // one layer
    int i = producer_[g_.output_logits];
    ValueId v = g_.output_logits;
    while (i >= 0) {
      a_.in_logits[v] = 1;
      if (N(i).op == Op::kGemm) break;
      v = N(i).inputs[0];
      i = producer_[v];
    }
  }

  void Visit(int i) {
    const Node& n = N(i);
    if (graph::IsFixed(g_, n.outputs[0])) {
      a_.absorbed[i] = 1;
      a_.stored[n.outputs[0]] = 0;
      return;
    }
    switch (n.op) {
      case Op::kGemm: return VisitGemm(i);
      case Op::kReshape: return Share(n.outputs[0], n.inputs[0], 0);
      case Op::kGather: return VisitGather(i);
      case Op::kRmsNorm:
        if (OnlyActivations(n.outputs[0], i)) {
          a_.into_activations[i] = 1;
          a_.stored[n.outputs[0]] = 0;
        }
        return;
      case Op::kGatedActivation:
        if (OnlyActivations(n.outputs[0], i)) {
          a_.into_activations[i] = 1;
          a_.stored[n.outputs[0]] = 0;
        }
        return;
      case Op::kSkipRmsNorm: return VisitSkipNorm(i);
      default: return;
    }
  }

  void Share(ValueId v, ValueId with, int64_t column) {
    a_.owner[v] = with;
    a_.column[v] = column;
  }

  void VisitGather(int i) {
    const int c = OnlyConsumer(N(i).outputs[0]);
    if (c < 0 || N(c).op != Op::kMul || !IsNumber(N(c).inputs[1])) return;
    a_.absorbed[c] = 1;  // the embedding step multiplies
    Share(N(i).outputs[0], N(c).outputs[0], 0);
  }
  bool IsNumber(ValueId v) const { return g_.IsConstant(v) && g_.values[v].constant->data.size() == 1; }

  void VisitGemm(int i) {
    const Node& n = N(i);
    const ValueId out = n.outputs[0];
    const int64_t rows = g_.values[n.inputs[1]].shape[0];
    const int c = OnlyConsumer(out);
    auto& segments = a_.segments[i];
    if (c >= 0 && N(c).op == Op::kSplit) {
      int64_t at = 0;
      for (ValueId piece : N(c).outputs) {
        segments.push_back(g_.values[piece].shape.back());
        Share(piece, out, at);
        at += kernels::PaddedRows(segments.back());
      }
      a_.absorbed[c] = 1;
      a_.row_values[out] = at;
    } else if (c >= 0 && N(c).op == Op::kGatedActivation) {
      segments = {rows / 2, rows / 2};
      a_.row_values[out] = 2 * kernels::PaddedRows(rows / 2);
    } else {
      segments = {rows};
      a_.row_values[out] = kernels::PaddedRows(rows);
    }
  }

  // (x, skip, w) -> (norm(x + skip), x + skip): the sum stays in x's memory; who made `skip` adds into it when nobody else
  // wants `skip` and nobody reads x in between.
  void VisitSkipNorm(int i) {
    const Node& n = N(i);
    const ValueId x = n.inputs[0], skip = n.inputs[1], normed = n.outputs[0];
    const ValueId sum = n.outputs.size() > 1 ? n.outputs.back() : kNoValue;
    const int maker = producer_[skip];
    const bool x_dies = !g_.IsConstant(x) && consumers_[x].back() == i && x != g_.output_logits;
    if (x_dies && sum != kNoValue) Share(sum, x, 0);
    const bool alone = maker >= 0 && OnlyConsumer(skip) == i;
    const bool quiet = std::all_of(consumers_[x].begin(), consumers_[x].end(), [&](int c) { return c == i || c < maker; });
    if (x_dies && alone && quiet && N(maker).op == Op::kGemm && a_.segments[maker].size() == 1) {
      a_.accumulates[maker] = i;
      a_.stored[skip] = 0;
    } else if (x_dies && alone && maker == i - 1 && N(maker).op == Op::kRmsNorm && N(maker).inputs[0] != x) {
      // maker == i - 1: the memory plan frees the norm's input after the norm, and the add step reads it one node later.
      a_.absorbed[maker] = 1;  // the add step norms its second operand
      a_.stored[skip] = 0;
    }
    if (OnlyActivations(normed, i)) {
      a_.into_activations[i] = 1;
      a_.stored[normed] = 0;
    }
  }

  const Graph& g_;
  ComputeMode compute_;
  Analysis a_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
};

}  // namespace

int64_t RowWidth(const Graph& g, ValueId v) {
  int64_t w = 1;
  for (int64_t d : g.values[v].shape)
    if (d != graph::kT) w *= d;
  return w;
}

bool TakesActivations(const Graph& g, const Node& gemm, ComputeMode compute) {
  const auto& c = g.values[gemm.inputs[1]].constant;
  return compute == ComputeMode::kNative && c && !c->parts.empty() && kernels::IsQuantized(ChooseKind(*c).kind);
}

Analysis Analyse(const Graph& g, ComputeMode compute) { return Analyser(g, compute).Run(); }

}  // namespace slm::backend
