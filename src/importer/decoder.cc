// See decoder.h: inputs and outputs of the graph, and what its nodes say about the shape of the model.
#include "importer/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "importer/flatten.h"
#include "importer/walk.h"
#include "model/quoted.h"

namespace slm::importer {
namespace {

using model::Quoted;

constexpr int kMostLayers = 4096;
constexpr int64_t kMostWidth = 8192;

Error Refuse(const std::string& what) {
  return Error(Code::kUnsupported, what, "this is no decoder of one sequence of tokens; run it with ONNX Runtime");
}

bool IsWhole(onnx::ElementType t) { return t == onnx::ElementType::kInt64 || t == onnx::ElementType::kInt32; }

class Interpreter {
 public:
  Interpreter(const std::shared_ptr<onnx::Model>& m, const Stated& stated)
      : m_(*m), stated_(stated), naming_(stated.naming), w_(m, stated.longest, stated.form) {}

  Status Run() {
    if (!m_.graph.sparse_initializers.empty()) return Refuse("sparse weights");
    for (const onnx::Tensor& t : m_.graph.initializers) {
      auto v = std::make_shared<Value>();
      v->name = t.name;
      v->weight = WeightView{};
      v->weight->values = &t;
      w_.values[t.name] = std::move(v);
    }
    for (const onnx::ValueInfo& v : m_.graph.inputs)
      if (!w_.values.contains(v.name)) SLM_RETURN_IF_ERROR(AddInput(v));
    SLM_RETURN_IF_ERROR(CheckLayers());
    SLM_RETURN_IF_ERROR(WalkNodes(w_));
    SLM_RETURN_IF_ERROR(CheckOutputs());
    w_.emit.NumberLayers();
    SLM_RETURN_IF_ERROR(graph::InferShapes(w_.emit.graph()));
    return graph::Verify(w_.emit.graph());
  }

  Walk& walk() { return w_; }

  Result<Facts> FactsOfGraph() const;

 private:
  Status AddInput(const onnx::ValueInfo& v) {
    const std::string place = "input " + Quoted(v.name);
    if (v.type.kind != onnx::ValueType::Kind::kTensor) return Refuse(place + " is no tensor");
    auto value = std::make_shared<Value>();
    value->name = v.name;
    Input input = Input::kUnknown;
    if (v.name == naming_.input_ids) input = Input::kIds;
    else if (v.name == naming_.attention_mask) input = Input::kMask;
    else if (v.name == naming_.position_ids || v.name == "cache_position") input = Input::kPositions;
    else if (v.name == naming_.last_slot) input = Input::kLastSlot;
    else if (v.name == naming_.total) input = Input::kTotal;
    const int key = NumberIn(v.name, naming_.past_key), number = key >= 0 ? key : NumberIn(v.name, naming_.past_value);
    if (input == Input::kUnknown && number >= 0) {
      input = Input::kPast;
      SLM_RETURN_IF_ERROR(AddPast(v, number, key >= 0 ? Part::kKeys : Part::kValues, value.get()));
    }
    if (input == Input::kUnknown) return Refuse(place + " is none of a decoder's (tokens, mask, positions, cache)");
    if (input != Input::kPast && !IsWhole(v.type.element))
      return Refuse(place + " of type " + std::string(onnx::Info(v.type.element).name));
    w_.calls.AddInput(v, input);
    if (input == Input::kIds) {
      value->kind = Kind::kIds;
      value->axes = {One(), TokenAxisOf(stated_.form)};
    } else if (input != Input::kPast) {
      value->kind = Kind::kCall;
      for (const CallLengths& call : w_.calls.probes()) value->at.push_back(w_.calls.ArrayOf(v.name, call));
    }
    w_.values[v.name] = std::move(value);
    return Ok();
  }

  enum class Part : uint8_t { kKeys, kValues };  // of a layer's cache
  Status AddPast(const onnx::ValueInfo& v, int number, Part part, Value* value) {
    const auto& shape = v.type.shape;
    const auto size = [&](size_t i, int64_t stated) { return shape[i].value == -1 && stated > 0 ? stated : shape[i].value; };
    const int64_t heads = shape.size() == 4 ? size(1, stated_.n_kv_heads) : 0, width = shape.size() == 4 ? size(3, stated_.head_dim) : 0;
    if (number >= kMostLayers || heads < 1 || width < 1 || heads > kMostHeads || width > kMostWidth)
      return Refuse(fmt::format("input {}: a cache is [batch, heads, slots, width], heads and width known", Quoted(v.name)));
    if (const int64_t slots = shape[2].value; slots >= 0) {
      if (slots == 0) return Refuse(fmt::format("input {}: a cache of no slots", Quoted(v.name)));
      w_.most_total = w_.most_total == 0 ? slots : std::min(w_.most_total, slots);
    }
    value->kind = Kind::kPast;
    value->layer = number;
    value->is_key = part == Part::kKeys;
    value->axes = {One(), Feature(heads, width), OfKind(AxisKind::kPast), Feature(width)};
    if (w_.layers.size() <= static_cast<size_t>(number)) w_.layers.resize(static_cast<size_t>(number) + 1);
    Layer& layer = w_.layers[static_cast<size_t>(number)];
    if ((layer.n_kv_heads != 0 && (layer.n_kv_heads != heads || layer.head_dim != width)))
      return Refuse(fmt::format("input {}: keys and values of different shapes", Quoted(v.name)));
    layer.n_kv_heads = heads, layer.head_dim = width;
    (value->is_key ? layer.past_key : layer.past_value) = v.name;
    return Ok();
  }

  Status CheckLayers() const {
    if (!w_.values.contains(naming_.input_ids)) return Refuse("no input " + Quoted(naming_.input_ids) + " of token ids");
    if (w_.layers.empty()) return Refuse("no inputs that are a cache of keys and values (" + Quoted(naming_.past_key) + ")");
    for (size_t i = 0; i < w_.layers.size(); ++i)
      if (w_.layers[i].past_key.empty() || w_.layers[i].past_value.empty())
        return Refuse(fmt::format("layer {} has no cache of keys or values", i));
    return Ok();
  }

  Status CheckOutputs() {
    std::vector<int> there(w_.layers.size() * 2, 0);
    bool logits = false;
    for (const onnx::ValueInfo& o : m_.graph.outputs) {
      const std::string place = "output " + Quoted(o.name);
      const auto at = w_.values.find(o.name);
      if (at == w_.values.end()) return Refuse(place + " has no value");
      if (o.name == naming_.logits) {
        SLM_RETURN_IF_ERROR(SetLogits(at->second));
        logits = true;
        continue;
      }
      const int key = NumberIn(o.name, naming_.present_key), number = key >= 0 ? key : NumberIn(o.name, naming_.present_value);
      const Value& v = *at->second;
      if (number < 0) return Refuse(place + " is none of a decoder's (logits, cache)");
      if (v.kind != Kind::kCached || v.layer != number || v.is_key != (key >= 0) || v.scale != 1 ||
          static_cast<size_t>(number) >= w_.layers.size())
        return Refuse(place + " is not the cache of its layer with the new keys or values");
      const Layer& layer = w_.layers[static_cast<size_t>(number)];
      if (v.axes != Axes{One(), Feature(layer.n_kv_heads, layer.head_dim), OfKind(AxisKind::kSlot), Feature(layer.head_dim)})
        return Refuse(place + " lies differently than its input");
      there[static_cast<size_t>(number) * 2 + (key >= 0 ? 0 : 1)] = 1;
    }
    if (!logits) return Refuse("no output " + Quoted(naming_.logits));
    if (const auto gap = std::find(there.begin(), there.end(), 0); gap != there.end())
      return Refuse(fmt::format("layer {} gives its cache no new keys or values", (gap - there.begin()) / 2));
    for (size_t i = 0; i < w_.layers.size(); ++i)
      if (!w_.layers[i].has_attention) return Refuse(fmt::format("layer {} has a cache and no attention", i));
    return Ok();
  }

  Status SetLogits(const ValuePtr& v) {
    const ValuePtr rows = Emitter::AsRows(v);
    const Axes all = rows ? WithoutOnes(rows->axes) : Axes();
    if (!rows || !InOrder(rows->axes) || all.size() > 2 || rows->axes.size() > 3 || rows->axes.size() < 2)
      return Refuse("the logits are not [batch, tokens, vocabulary]");
    SLM_ASSIGN_OR_RETURN(const ValueId id, w_.emit.Materialise(*rows));
    w_.emit.SetLogits(id);
    return Ok();
  }

  const onnx::Model& m_;
  const Stated& stated_;
  const Naming& naming_;
  Walk w_;
};

Result<Facts> Interpreter::FactsOfGraph() const {
  Facts f;
  const graph::Graph& g = w_.emit.graph();
  f.n_layers = static_cast<int>(w_.layers.size());
  const Layer& first = w_.layers[0];
  f.n_heads = static_cast<int>(first.n_heads), f.n_kv_heads = static_cast<int>(first.n_kv_heads),
  f.head_dim = static_cast<int>(first.head_dim);
  for (const Layer& l : w_.layers) {
    if (l.n_kv_heads != first.n_kv_heads || l.head_dim != first.head_dim || l.n_heads != first.n_heads)
      return Refuse("layers of different heads");
    f.window = std::max(f.window, l.window);
    f.is_local.push_back(l.window > 0);
  }
  if (f.window == 0) f.is_local.clear();
  ValueId table = graph::kNoValue;
  for (const graph::Node& n : g.nodes) {
    const auto shape = [&](size_t i) -> const graph::Shape& { return g.values[static_cast<size_t>(n.inputs[i])].shape; };
    if (n.op == Op::kGather) table = n.inputs[0], f.d_model = static_cast<int>(shape(0)[1]);
    if (n.op == Op::kRotary) f.rotary_dim = static_cast<int>(n.Int(AttrKey::kRotaryDim)), f.interleaved = n.Int(AttrKey::kInterleaved) != 0;
    if (n.op != Op::kGemm) continue;
    if (n.inputs[1] == table) f.tied_head = true;
    if (n.layer >= 0 && shape(1)[1] != f.d_model && shape(1)[0] == f.d_model && shape(1)[1] != int64_t{f.n_heads} * f.head_dim)
      f.d_ff = static_cast<int>(shape(1)[1]);
  }
  f.vocab_size = static_cast<int>(g.values[static_cast<size_t>(g.output_logits)].shape.back());
  if (table == graph::kNoValue) return Refuse("no embedding of the tokens");
  if (g.values[static_cast<size_t>(table)].shape[0] < f.vocab_size) return Refuse("an embedding of fewer tokens than the logits have");
  return f;
}

}  // namespace

int NumberIn(const std::string& name, const std::string& pattern) {
  const size_t at = pattern.find("%d");
  if (at == std::string::npos) return -1;
  const std::string head = pattern.substr(0, at), tail = pattern.substr(at + 2);
  if (name.size() <= head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) return -1;
  const char *begin = name.data() + head.size(), *end = name.data() + name.size() - tail.size();
  int number = -1;
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end && number >= 0 ? number : -1;
}

Result<Interpreted> InterpretDecoder(std::shared_ptr<const onnx::Model> file, const Stated& stated) {
  SLM_ASSIGN_OR_RETURN(std::shared_ptr<onnx::Model> m, Flatten(std::move(file)));
  Interpreter i(m, stated);
  SLM_RETURN_IF_ERROR(i.Run());
  SLM_ASSIGN_OR_RETURN(Facts facts, i.FactsOfGraph());
  Walk& w = i.walk();
  facts.most_positions = w.most_total;
  std::vector<RopeTable> tables = w.emit.TakeTables();
  for (const RopeTable& t : tables) {
    const auto rows = static_cast<int64_t>(t.cos_rows.size()) / t.half;
    if (rows > 0) facts.most_positions = facts.most_positions == 0 ? rows : std::min(facts.most_positions, rows);
  }
  graph::Graph g = std::move(w.emit.graph());
  Weights weights = std::move(w.emit.weights());
  std::map<std::string, ValuePtr> values = std::move(w.values);
  Calls calls = w.calls;
  return Interpreted{Decoder{std::move(m), std::move(g), std::move(tables), std::move(calls), std::move(values)}, std::move(weights),
                     std::move(facts)};
}

}  // namespace slm::importer
