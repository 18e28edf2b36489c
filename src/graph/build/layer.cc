// CutLayer: one layer of a plain decoder graph as a graph of its own. Calibration runs layers one at a time, so that only one is in
// memory in float; cutting the graph that users run keeps what is calibrated equal to what is run. See graph.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/graph.h"

namespace slm::graph {
namespace {

class Cutter {
 public:
  Cutter(const Graph& g, int layer) : g_(g), layer_(layer) {}

  Result<LayerGraph> Run(std::shared_ptr<const Constant> hidden, int64_t rows) {
    SLM_ASSIGN_OR_RETURN(const ValueId in, Input());
    SLM_ASSIGN_OR_RETURN(const ValueId out, Output());
    Graph& to = out_.graph;
    to.model = g_.model;
    to.input_ids = to.AddValue({"rows", {kT}, ElementType::kI64, nullptr});
    to.input_positions = to.AddValue({"position_ids", {kT}, ElementType::kI64, nullptr});
    ids_[g_.input_positions] = to.input_positions;
    const Shape& shape = g_.values[in].shape;
    const ValueId table = to.AddValue({"hidden_states", {rows, shape.back()}, ElementType::kF32, std::move(hidden)});
    ids_[in] = to.AddValue({"layer_input", shape, ElementType::kF32, nullptr});
    to.nodes.push_back({Op::kGather, "layer_input", {table, to.input_ids}, {ids_[in]}, {}, layer_});
    for (const Node& n : g_.nodes)
      if (n.layer == layer_) Add(n);
    out_.output = ids_.at(out);
    return std::move(out_);
  }

 private:
  // The computed value that the layer's nodes read and none of them makes.
  Result<ValueId> Input() const {
    ValueId found = kNoValue;
    for (const Node& n : g_.nodes) {
      if (n.layer != layer_) continue;
      for (const ValueId v : n.inputs) {
        if (v == kNoValue || g_.IsConstant(v) || v == g_.input_positions || v == found) continue;
        const int producer = g_.ProducerOf(v);
        if (producer >= 0 && g_.nodes[producer].layer == layer_) continue;
        if (found != kNoValue || producer < 0) return NotALayer();
        found = v;
      }
    }
    if (found == kNoValue) return NotALayer();
    return found;
  }
  // The value of the layer that other nodes read.
  Result<ValueId> Output() const {
    ValueId found = kNoValue;
    for (const Node& n : g_.nodes) {
      if (n.layer == layer_) continue;
      for (const ValueId v : n.inputs) {
        const int producer = v == kNoValue ? -1 : g_.ProducerOf(v);
        if (producer < 0 || g_.nodes[producer].layer != layer_ || v == found) continue;
        if (found != kNoValue) return NotALayer();
        found = v;
      }
    }
    if (found == kNoValue) return NotALayer();
    return found;
  }
  Error NotALayer() const { return Error(Code::kUnsupported, fmt::format("layer {} does not have one input and one output", layer_)); }

  ValueId Mapped(ValueId v) {
    if (v == kNoValue) return v;
    if (const auto it = ids_.find(v); it != ids_.end()) return it->second;
    return ids_[v] = out_.graph.AddValue(g_.values[v]);
  }
  void Add(const Node& n) {
    Node copy = n;
    for (ValueId& v : copy.inputs) v = Mapped(v);
    for (ValueId& v : copy.outputs) v = Mapped(v);
    for (Attr& a : copy.attrs)
      if (a.key == AttrKey::kLayer) a.value = int64_t{0};
    out_.graph.nodes.push_back(std::move(copy));
  }

  const Graph& g_;
  const int layer_;
  LayerGraph out_;
  std::map<ValueId, ValueId> ids_;
};

}  // namespace

Result<LayerGraph> CutLayer(const Graph& g, int layer, std::shared_ptr<const Constant> hidden, int64_t rows) {
  return Cutter(g, layer).Run(std::move(hidden), rows);
}

}  // namespace slm::graph
