// See static_graph.h. A query's heads lie under the key head that they share, so that scores are one product of [Hkv, R * T, D] with
// [Hkv, D, S + T]; keys are kept transposed. The scale of the scores is in the query projection.
#include "exporter/qdq/static_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "exporter/onnx_parts.h"

namespace slm::exporter {
namespace {
using graph::AttrKey;
using graph::kNoValue;
using graph::Node;
using graph::Op;
using graph::ValueId;
using onnx::Attribute;
using onnx::ElementType;
using Dims = std::vector<int64_t>;
using Names = std::vector<std::string>;

constexpr const char* kLogits = "logits";

class StaticBuilder {
 public:
  StaticBuilder(const graph::Graph& g, int64_t tokens, int64_t slots, KeyRotation keys)
      : g_(g), c_(g.model->config), t_(tokens), s_(slots), keys_(keys), bytes_(std::make_shared<std::deque<std::vector<int64_t>>>()) {}

  Result<StaticGraph> Build() {
    out_.tokens = t_;
    out_.mask_repeats = c_.n_heads / c_.n_kv_heads;
    out_.graph.name = c_.name.empty() ? "decoder" : c_.name;
    AddInput({.name = "embeddings", .kind = StaticInput::Kind::kTokenRows, .table = "embedding"}, {1, t_, c_.d_model});
    for (const Node& n : g_.nodes) Prepare(n);
    for (const Node& n : g_.nodes)
      if (!graph::IsFixed(g_, n.outputs[0])) SLM_RETURN_IF_ERROR(Convert(n));
    onnx::Graph& graph = out_.graph;
    for (const onnx::ValueInfo& v : past_) graph.inputs.push_back(v);
    graph.outputs.push_back(Info(NameOf(g_.output_logits), {1, t_, c_.vocab_size}));
    for (const onnx::ValueInfo& v : present_) graph.outputs.push_back(v);
    out_.bytes = bytes_;
    return std::move(out_);
  }

 private:
  static onnx::ValueInfo Info(const std::string& name, const Dims& dims) {
    std::vector<onnx::Dim> shape;
    for (const int64_t d : dims) shape.push_back({d, ""});
    return TensorInfo(name, ElementType::kFloat, std::move(shape));
  }
  std::string AddInput(StaticInput input, const Dims& dims) {
    const std::string name = input.name;
    for (const onnx::ValueInfo& known : out_.graph.inputs)
      if (known.name == name) return name;
    out_.graph.inputs.push_back(Info(name, dims));
    out_.inputs.push_back(std::move(input));
    return name;
  }

  // A node with one output that has the node's name.
  std::string Emit(const char* op, const std::string& node, Names inputs, std::vector<Attribute> attributes = {}) {
    const std::string name = node == g_.values[g_.output_logits].name ? kLogits : node;
    onnx::Node n;
    n.name = name, n.op_type = op;
    n.inputs = std::move(inputs), n.outputs = {name}, n.attributes = std::move(attributes);
    out_.graph.nodes.push_back(std::move(n));
    return name;
  }
  // `values` as an initializer, once.
  std::string Whole(const Dims& values) {
    const std::string name = fmt::format("whole.{}", fmt::join(values, "_"));
    for (const onnx::Tensor& known : out_.graph.initializers)
      if (known.name == name) return name;
    const std::vector<int64_t>& kept = bytes_->emplace_back(values);
    onnx::Tensor t;
    t.name = name;
    t.type = ElementType::kInt64;
    t.dims = {static_cast<int64_t>(kept.size())};
    t.data = std::as_bytes(std::span(kept));
    out_.graph.initializers.push_back(std::move(t));
    return name;
  }
  std::string Reshape(const std::string& name, const std::string& x, const Dims& dims) { return Emit("Reshape", name, {x, Whole(dims)}); }
  std::string Transpose(const std::string& name, const std::string& x, const Dims& perm) {
    return Emit("Transpose", name, {x}, {Ints("perm", perm)});
  }
  std::string Slice(const std::string& name, const std::string& x, int64_t begin, int64_t end, int64_t axis) {
    return Emit("Slice", name, {x, Whole({begin}), Whole({end}), Whole({axis})});
  }
  std::string Vector(const std::string& name, Dims dims, std::vector<float> values) {
    out_.vectors.try_emplace(name, VectorUse{std::move(dims), std::move(values)});
    return name;
  }
  std::string Vector(const std::string& name, std::vector<float> values) {
    const auto n = static_cast<int64_t>(values.size());
    return Vector(name, {n}, std::move(values));
  }
  std::string FixedVector(ValueId v, const std::string& name) { return Vector(name, g_.values[v].shape, graph::FixedValues(g_, v)); }

  std::string NameOf(ValueId v) const {
    if (const auto it = names_.find(v); it != names_.end()) return it->second;
    if (v == g_.output_logits) return kLogits;
    return g_.values[v].name;
  }
  void SetRange(const std::string& value, const std::string& key, float factor = 1) {
    if (value != key || factor != 1) out_.ranges[value] = {key, factor};
  }

  const Node* Producer(ValueId v) const {
    const int i = g_.ProducerOf(v);
    return i < 0 ? nullptr : &g_.nodes[static_cast<size_t>(i)];
  }
  // What has to be known before the nodes that it is about: orders of rows, and where the scale of scores goes.
  void Prepare(const Node& n) {
    if (n.op == Op::kRotary && n.Int(AttrKey::kInterleaved) != 0) {
      const int64_t heads = n.Int(AttrKey::kNumHeads);
      const HeadOrder order{heads, RowWidth(n.inputs[0]) / heads, n.Int(AttrKey::kRotaryDim)};
      for (const Node* p = Producer(n.inputs[0]); p; p = Producer(p->inputs[0])) {
        order_[p->outputs[0]] = p->op == Op::kRmsNorm ? HeadOrder{1, order.head_dim, order.rotary_dim} : order;
        if (p->op == Op::kGemm) break;
      }
    }
    if (n.op == Op::kGroupQueryAttention) {
      const ValueId keys = n.inputs[graph::kGqaKey];
      if (const Node* p = Producer(keys); keys_ == KeyRotation::kColumns && p && p->op == Op::kRotary) names_.try_emplace(keys, KeyName(n));
      const float scale = n.Float(AttrKey::kScale, 1);
      for (ValueId v = n.inputs[graph::kGqaQuery]; v != kNoValue;) {
        const Node* p = Producer(v);
        if (!p) break;
        factor_[v] = scale;
        if (p->op == Op::kGemm || p->op == Op::kRmsNorm) break;
        v = p->inputs[0];
      }
    }
  }
  int64_t RowWidth(ValueId v) const {
    int64_t width = 1;
    for (const int64_t d : g_.values[v].shape)
      if (d != graph::kT) width *= d;
    return width;
  }
  HeadOrder OrderOf(ValueId v) const {
    const auto it = order_.find(v);
    return it == order_.end() ? HeadOrder{} : it->second;
  }
  float FactorOf(ValueId v) const {
    const auto it = factor_.find(v);
    return it == factor_.end() ? 1.0f : it->second;
  }

  Status Convert(const Node& n) {
    const ValueId out = n.outputs[0];
    const auto in = [&](size_t i) {
      const ValueId v = n.inputs[i];
      return graph::IsFixed(g_, v) ? FixedVector(v, g_.values[v].name) : NameOf(v);
    };
    SetRange(NameOf(out), g_.values[out].name, FactorOf(out));
    switch (n.op) {
      case Op::kGather: names_[out] = "embeddings"; return Ok();
      case Op::kGemm: return Product(n);
      case Op::kMul:
        if (const Node* p = Producer(n.inputs[0]); p && p->op == Op::kGather && graph::IsFixed(g_, n.inputs[1])) {
          out_.embedding_factor = graph::FixedValues(g_, n.inputs[1])[0];
          names_[out] = "embeddings";
          return Ok();
        }
        Emit("Mul", n.name, {in(0), in(1)});
        return Ok();
      case Op::kAdd: Emit("Add", n.name, {in(0), in(1)}); return Ok();
      case Op::kDiv: Emit("Div", n.name, {in(0), in(1)}); return Ok();
      case Op::kTanh: Emit("Tanh", n.name, {in(0)}); return Ok();
      case Op::kSigmoid: Emit("Sigmoid", n.name, {in(0)}); return Ok();
      case Op::kSwish: Emit("Mul", n.name, {in(0), Emit("Sigmoid", n.name + ".sigmoid", {in(0)})}); return Ok();
      case Op::kGelu: Emit("Gelu", n.name, {in(0)}, {Text("approximate", n.String(AttrKey::kApproximate, "none"))}); return Ok();
      case Op::kReshape: {
        Dims dims{1, t_};
        const graph::Shape& shape = g_.values[out].shape;
        dims.insert(dims.end(), shape.begin() + 1, shape.end());
        Reshape(n.name, in(0), dims);
        return Ok();
      }
      case Op::kRmsNorm: return Norm(n);
      case Op::kRotary: return Rotary(n);
      case Op::kGroupQueryAttention: return Attention(n);
      default: break;
    }
    return Error(Code::kUnsupported, fmt::format("{}: {} has no form in graphs of fixed shapes", n.name, graph::Info(n.op).name),
                 "run no passes before");
  }

  Status Product(const Node& n) {
    const ValueId w = n.inputs[1], out = n.outputs[0];
    const std::string matrix = g_.values[w].name;
    const auto [at, is_new] = out_.matrices.try_emplace(matrix, MatrixUse{w, OrderOf(out), FactorOf(out)});
    if (!is_new && (at->second.factor != FactorOf(out) || at->second.order.heads != OrderOf(out).heads))
      return Error(Code::kUnsupported, fmt::format("{}: {} is used in two ways", n.name, matrix));
    const bool bias = n.inputs.size() > 2 && n.inputs[2] != kNoValue;
    const std::string product = Emit("MatMul", bias ? n.name + ".product" : n.name, {NameOf(n.inputs[0]), matrix});
    if (!bias) return Ok();
    std::vector<float> values = Reordered(graph::FixedValues(g_, n.inputs[2]), 1, OrderOf(out));
    for (float& v : values) v *= FactorOf(out);
    Emit("Add", n.name, {product, Vector(n.name + ".bias", std::move(values))});
    return Ok();
  }

  Status Norm(const Node& n) {
    std::vector<float> values = Reordered(graph::FixedValues(g_, n.inputs[1]), 1, OrderOf(n.outputs[0]));
    for (float& v : values) v *= FactorOf(n.outputs[0]);
    const std::string w = Vector(n.name + ".weight", std::move(values));
    Emit("RMSNormalization", n.name, {NameOf(n.inputs[0]), w}, {Int("axis", -1), Float("epsilon", n.Float(AttrKey::kEpsilon))});
    return Ok();
  }

  // [1, T, H * D] as [1, H, T, D].
  std::string Heads(const std::string& x, int64_t heads) {
    return Transpose(x + ".by_head", Reshape(x + ".heads", x, {1, t_, heads, c_.head_dim}), {0, 2, 1, 3});
  }

  static std::string KeyName(const Node& attention) { return fmt::format("key.{}", attention.Int(AttrKey::kLayer)); }
  // Keys [1, T, Hkv * D], or normed [1, T, Hkv, D], as [1, Hkv, D, T] under `name`.
  std::string Columns(const std::string& name, ValueId v, int64_t heads) {
    const std::string x = NameOf(v);
    const bool by_head = g_.values[v].shape.size() > 2;
    const std::string row = by_head ? Reshape(x + ".row", x, {1, t_, heads * c_.head_dim}) : x;
    return Reshape(name, Transpose(x + ".columns", row, {0, 2, 1}), {1, heads, c_.head_dim, t_});
  }
  // Rows by position [1, 1, T, R] as [1, 1, R, T], once.
  std::string ColumnsOfTable(const std::string& table) {
    const std::string name = table + ".columns";
    const auto same = [&](const onnx::Node& n) { return n.name == name; };
    if (std::any_of(out_.graph.nodes.begin(), out_.graph.nodes.end(), same)) return name;
    return Transpose(name, table, {0, 1, 3, 2});
  }

  // x cos + rotated(x) sin, where rotated() swaps the halves and negates the second. Queries by head [1, Hq, T, D], keys too, or
  // [1, Hkv, D, T].
  Status Rotary(const Node& n) {
    const int64_t heads = n.Int(AttrKey::kNumHeads), r = n.Int(AttrKey::kRotaryDim), d = c_.head_dim;
    const std::string table = g_.values[n.inputs[1]].name, stem = table.substr(0, table.rfind('.'));
    const std::string cos =
        AddInput({.name = stem + ".cos", .kind = StaticInput::Kind::kPositionRows, .table = stem + ".cos"}, {1, 1, t_, r});
    const std::string sin =
        AddInput({.name = stem + ".sin", .kind = StaticInput::Kind::kPositionRows, .table = stem + ".sin"}, {1, 1, t_, r});
    const std::string out = NameOf(n.outputs[0]);
    const bool is_key = names_.contains(n.outputs[0]);
    const int64_t axis = is_key ? 2 : 3;
    const std::string x = is_key ? Columns(n.name + ".columns", n.inputs[0], heads) : Heads(NameOf(n.inputs[0]), heads);
    const std::string turned = r == d ? x : Slice(n.name + ".turned", x, 0, r, axis);
    const std::string low = Slice(n.name + ".low", x, 0, r / 2, axis), high = Slice(n.name + ".high", x, r / 2, r, axis);
    const std::string swapped = Emit("Concat", n.name + ".swapped", {Emit("Neg", n.name + ".negated", {high}), low}, {Int("axis", axis)});
    const std::string by_cos = Emit("Mul", n.name + ".by_cos", {turned, is_key ? ColumnsOfTable(cos) : cos});
    const std::string by_sin = Emit("Mul", n.name + ".by_sin", {swapped, is_key ? ColumnsOfTable(sin) : sin});
    const std::string sum = r == d ? out : n.name + ".sum";
    Emit("Add", sum, {by_cos, by_sin});
    SetRange(sum, g_.values[n.outputs[0]].name, FactorOf(n.outputs[0]));
    if (r < d) Emit("Concat", out, {sum, Slice(n.name + ".kept", x, r, d, axis)}, {Int("axis", axis)});
    if (!is_key) by_head_.insert(out);
    return Ok();
  }

  std::string ByHead(ValueId v, int64_t heads) {
    const std::string name = NameOf(v);
    return by_head_.contains(name) ? name : Heads(name, heads);
  }

  Status Attention(const Node& n) {
    const int64_t hq = n.Int(AttrKey::kNumHeads), hkv = n.Int(AttrKey::kKvNumHeads), d = c_.head_dim, rows = hq / hkv * t_;
    const int64_t layer = n.Int(AttrKey::kLayer), window = std::max<int64_t>(n.Int(AttrKey::kLocalWindow, -1), 0);
    const std::string past_key = fmt::format("past_key.{}", layer), past_value = fmt::format("past_value.{}", layer);
    past_.push_back(Info(past_key, {1, hkv, d, s_}));
    past_.push_back(Info(past_value, {1, hkv, s_, d}));
    const std::string q = Reshape(n.name + ".queries", ByHead(n.inputs[graph::kGqaQuery], hq), {1, hkv, rows, d});
    const ValueId keys = n.inputs[graph::kGqaKey], values = n.inputs[graph::kGqaValue];
    const std::string key = KeyName(n);
    if (NameOf(keys) != key) {
      if (names_.contains(keys)) return Error(Code::kUnsupported, n.name + ": keys that another layer has, too");
      if (keys_ == KeyRotation::kColumns) Columns(key, keys, hkv);
      else Transpose(key, ByHead(keys, hkv), {0, 1, 3, 2});
    }
    const std::string flat = NameOf(values);
    const std::string value = Transpose(fmt::format("value.{}", layer), Reshape(flat + ".heads", flat, {1, t_, hkv, d}), {0, 2, 1, 3});
    present_.push_back(Info(key, {1, hkv, d, t_}));
    present_.push_back(Info(value, {1, hkv, t_, d}));
    const std::string all_keys = Emit("Concat", n.name + ".keys", {past_key, key}, {Int("axis", 3)});
    const std::string all_values = Emit("Concat", n.name + ".values", {past_value, value}, {Int("axis", 2)});
    for (const std::string& entry : {key, value}) out_.cache_entries.insert(entry);
    for (const std::string& slot : {past_key, past_value, all_keys, all_values}) out_.cache.insert(slot);
    for (const std::string& of_keys : {key, past_key, all_keys}) SetRange(of_keys, g_.values[keys].name);
    for (const std::string& of_values : {value, past_value, all_values}) SetRange(of_values, g_.values[values].name);
    std::string scores = Emit("MatMul", n.name + ".scores", {q, all_keys});
    if (const float cap = n.Float(AttrKey::kSoftcap); cap != 0) {
      const std::string by = Vector(n.name + ".cap", std::vector<float>{cap});
      scores = Emit("Mul", n.name + ".capped", {Emit("Tanh", n.name + ".tanh", {Emit("Div", n.name + ".ratio", {scores, by})}), by});
    }
    const std::string mask =
        AddInput({.name = window > 0 ? "mask_local" : "mask", .kind = StaticInput::Kind::kMask, .window = window}, {1, 1, rows, s_ + t_});
    const std::string sum = Emit("Add", n.name + ".masked", {scores, mask});
    out_.masked_scores.insert(sum);
    const std::string weights = Emit("Softmax", n.name + ".weights", {sum}, {Int("axis", -1)});
    const std::string mixed = Emit("MatMul", n.name + ".mixed", {weights, all_values});
    SetRange(mixed, n.name);
    const std::string back = Transpose(n.name + ".by_token", Reshape(n.name + ".by_head", mixed, {1, hq, t_, d}), {0, 2, 1, 3});
    Reshape(n.name, back, {1, t_, hq * d});
    return Ok();
  }

  const graph::Graph& g_;
  const model::ModelConfig& c_;
  const int64_t t_, s_;
  const KeyRotation keys_;
  StaticGraph out_;
  std::shared_ptr<std::deque<std::vector<int64_t>>> bytes_;
  std::vector<onnx::ValueInfo> past_, present_;
  std::map<ValueId, std::string> names_;  // of values that have another name than in the plain graph
  std::map<ValueId, HeadOrder> order_;
  std::map<ValueId, float> factor_;
  std::set<std::string> by_head_;  // values of shape [1, H, T, D]
};

}  // namespace

int64_t HeadOrder::Source(int64_t row) const {
  const int64_t at = row % head_dim, half = rotary_dim / 2;
  if (at >= rotary_dim) return row;
  return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

std::vector<float> Reordered(const std::vector<float>& values, int64_t width, const HeadOrder& order) {
  if (order.heads == 0) return values;
  std::vector<float> out(values.size());
  for (int64_t row = 0; row * width < static_cast<int64_t>(values.size()); ++row)
    std::memcpy(out.data() + row * width, values.data() + order.Source(row) * width, static_cast<size_t>(width) * sizeof(float));
  return out;
}

Result<StaticGraph> BuildStaticGraph(const graph::Graph& g, int64_t tokens, int64_t slots, KeyRotation keys) {
  return StaticBuilder(g, tokens, slots, keys).Build();
}

}  // namespace slm::exporter
