// See quantize.h. Two rules come from Qualcomm's compiler: a value that only moves keeps its encoding, and keys and values of the cache are
// signed with zero point 0: it makes an unsigned second operand of a product of two activations 8 bits wide, without a word.
#include "exporter/qdq/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>

#include "base/check.h"
#include "exporter/onnx_parts.h"

namespace slm::exporter {
namespace {
using model::CodedMatrix;
using model::ValueRange;
using onnx::ElementType;
using Names = std::vector<std::string>;

constexpr float kLeastSpan = 1e-6f;  // of a range: a value that is always 0 still needs a scale

ValueRange Union(ValueRange a, ValueRange b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }
ValueRange Product(ValueRange a, ValueRange b) {
  const auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  return {low, high};
}
ValueRange Scaled(ValueRange r, float by) { return by < 0 ? ValueRange{r.high * by, r.low * by} : ValueRange{r.low * by, r.high * by}; }
ValueRange SpanOf(const std::vector<float>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return values.empty() ? ValueRange{} : ValueRange{*low, *high};
}

bool Moves(const std::string& op) { return op == "Reshape" || op == "Transpose" || op == "Slice"; }

class Writer {
 public:
  Writer(const StaticGraph& from, const KnownRanges& known, MatrixStore& store, const std::map<const model::Tensor*, CodedMatrix>& matrices)
      : from_(from), known_(known), store_(store), matrices_(matrices), bytes_(std::make_shared<std::deque<std::vector<std::byte>>>()) {}

  Result<QuantizedGraph> Write() {
    onnx::Graph& g = out_.graph;
    g.name = from_.graph.name;
    g.initializers = from_.graph.initializers;
    for (const onnx::ValueInfo& v : from_.graph.inputs) SLM_RETURN_IF_ERROR(Input(v));
    for (const onnx::Node& n : from_.graph.nodes) SLM_RETURN_IF_ERROR(Convert(n));
    for (onnx::ValueInfo v : from_.graph.outputs) {
      if (from_.cache_entries.contains(v.name)) v.type.element = ElementType::kInt16;
      g.outputs.push_back(std::move(v));
    }
    return std::move(out_);
  }
  std::shared_ptr<const void> bytes() const { return bytes_; }

 private:
  template <class T>
  std::string Keep(const std::string& name, ElementType type, std::vector<int64_t> dims, const std::vector<T>& values) {
    std::vector<std::byte>& kept = bytes_->emplace_back(values.size() * sizeof(T));
    std::memcpy(kept.data(), values.data(), kept.size());
    onnx::Tensor t;
    t.name = name;
    t.type = type;
    t.dims = std::move(dims);
    t.data = kept;
    out_.graph.initializers.push_back(std::move(t));
    return name;
  }
  void Emit(const char* op, const std::string& name, Names inputs, const std::string& output,
            std::vector<onnx::Attribute> attributes = {}) {
    onnx::Node n;
    n.name = name, n.op_type = op;
    n.inputs = std::move(inputs), n.outputs = {output}, n.attributes = std::move(attributes);
    out_.graph.nodes.push_back(std::move(n));
  }

  // Scale and zero point as initializers, and the encoding that they are.
  struct Pair {
    Encoding encoding;
    std::string scale, zero;
  };
  Pair MakePair(const std::string& name, const Encoding& e) {
    Pair p{e, Keep<float>(name + ".scale", ElementType::kFloat, {}, {e.scale}), name + ".zero"};
    if (e.type == ElementType::kInt16) Keep<int16_t>(p.zero, e.type, {}, {static_cast<int16_t>(e.zero)});
    else Keep<uint16_t>(p.zero, e.type, {}, {static_cast<uint16_t>(e.zero)});
    return p;
  }
  void Quantize(const std::string& x, const std::string& to, const Pair& p) { Emit("QuantizeLinear", to, {x, p.scale, p.zero}, to); }
  void Dequantize(const std::string& x, const std::string& to, const Pair& p) { Emit("DequantizeLinear", to, {x, p.scale, p.zero}, to); }

  // What calibration found of `value`, widened.
  std::optional<ValueRange> Given(const std::string& value) const {
    RangeKey key{value, 1};
    if (const auto it = from_.ranges.find(value); it != from_.ranges.end()) key = it->second;
    const auto it = known_.ranges->find(key.name);
    if (it == known_.ranges->end()) return std::nullopt;
    return Scaled(Scaled(it->second, key.factor), known_.margin);
  }
  template <class T>
  static const T& Of(const std::map<std::string, T>& made, const std::string& value) {
    const auto it = made.find(value);
    SLM_ASSERT(it != made.end());  // graphs are in order, and constants have neither range nor pair
    return it->second;
  }
  // Of a value that is made already: what its integers can hold.
  ValueRange Made(const std::string& value) const { return Of(ranges_, value); }

  Result<ValueRange> RangeOf(const onnx::Node& n) const {
    const std::string& name = n.outputs[0];
    if (from_.masked_scores.contains(name)) {  // what the mask takes down may be cut at the lower end
      const ValueRange scores = Made(n.inputs[0]);
      return ValueRange{scores.low - kMaskMargin, scores.high};
    }
    if (const auto given = Given(name)) return *given;
    const auto in = [&](size_t i) { return Made(n.inputs[i]); };
    if (n.op_type == "Softmax" || n.op_type == "Sigmoid") return ValueRange{0, 1};
    if (n.op_type == "Tanh") return ValueRange{std::tanh(in(0).low), std::tanh(in(0).high)};
    if (n.op_type == "Neg") return ValueRange{-in(0).high, -in(0).low};
    if (n.op_type == "Concat") return Union(in(0), in(1));
    if (n.op_type == "Mul") return Product(in(0), in(1));
    if (n.op_type == "Div") return Scaled(in(0), 1 / in(1).high);  // by a number above 0
    if (n.op_type == "Add") return ValueRange{in(0).low + in(1).low, in(0).high + in(1).high};
    if (n.op_type == "MatMul" && name.ends_with(".product")) {  // before the bias: what is known is after it
      const std::string sum = name.substr(0, name.size() - 8);
      const auto bias = from_.vectors.find(sum + ".bias");
      const auto given = Given(sum);
      if (given && bias != from_.vectors.end()) {
        const ValueRange b = SpanOf(bias->second.values);
        return ValueRange{given->low - b.high, given->high - b.low};
      }
    }
    return Error(Code::kInvalidArgument, name + ": no range for the result of " + n.op_type, "calibrate the same model");
  }

  Status Input(const onnx::ValueInfo& v) {
    onnx::ValueInfo typed = v;
    const bool cache = from_.cache.contains(v.name);
    std::optional<ValueRange> range;
    if (cache) range = Given(v.name);
    else if (const auto it = known_.inputs.find(v.name); it != known_.inputs.end()) range = it->second;
    if (!range) return Error(Code::kInvalidArgument, v.name + ": no range for this input", "calibrate the same model");
    const Pair p = MakePair(v.name, cache ? SignedEncoding(*range) : UnsignedEncoding(*range));
    typed.type.element = p.encoding.type;
    out_.graph.inputs.push_back(std::move(typed));
    out_.inputs[v.name] = p.encoding;
    Dequantize(v.name, v.name + ".real", p);
    real_[v.name] = v.name + ".real";
    ranges_[v.name] = *range;
    pairs_[v.name] = p;
    return Ok();
  }

  // The name under which a node reads `x`: of a constant, its dequantized codes.
  Result<std::string> Real(const std::string& x) {
    if (const auto it = real_.find(x); it != real_.end()) return it->second;
    if (const auto v = from_.vectors.find(x); v != from_.vectors.end()) {
      const ValueRange range = SpanOf(v->second.values);
      const Pair p = MakePair(x, UnsignedEncoding(range));
      std::vector<uint16_t> codes;
      for (const float f : v->second.values) codes.push_back(static_cast<uint16_t>(Encode(p.encoding, f)));
      Dequantize(Keep(x + ".codes", ElementType::kUint16, v->second.dims, codes), x, p);
      ranges_[x] = range;
    } else if (const auto m = from_.matrices.find(x); m != from_.matrices.end()) {
      SLM_ASSIGN_OR_RETURN(const MatrixStore::Coded* c, store_.Codes(x, m->second, matrices_));
      for (const onnx::Tensor* t : {&c->codes, &c->scales, &c->zeros}) out_.graph.initializers.push_back(*t);
      std::vector<onnx::Attribute> how{Int("axis", c->group == 0 ? 1 : 0)};
      if (c->group > 0) how.push_back(Int("block_size", c->group));
      Emit("DequantizeLinear", x, {c->codes.name, c->scales.name, c->zeros.name}, x, std::move(how));
    }
    return real_[x] = x;
  }

  Status Convert(const onnx::Node& n) {
    const std::string& name = n.outputs[0];
    onnx::Node copy = n;
    for (std::string& x : copy.inputs) {
      SLM_ASSIGN_OR_RETURN(x, Real(x));
    }
    const bool moves = Moves(n.op_type), entry = from_.cache_entries.contains(name);
    copy.name = name + ".float";
    copy.outputs = {copy.name};
    out_.graph.nodes.push_back(std::move(copy));
    Pair p;
    ValueRange range;
    if (moves) {
      p = Of(pairs_, n.inputs[0]);
      range = Made(n.inputs[0]);
    } else {
      SLM_ASSIGN_OR_RETURN(range, RangeOf(n));
      p = MakePair(entry ? name + ".made" : name, from_.cache.contains(name) ? SignedEncoding(range) : UnsignedEncoding(range));
    }
    Quantize(name + ".float", name + ".q", p);
    if (!entry) {
      Dequantize(name + ".q", name, p);
      ranges_[name] = range;
      pairs_[name] = p;
      return Ok();
    }
    // From here on signed; the graph's output is the codes.
    const auto cached = Given(name);
    if (!cached) return Error(Code::kInvalidArgument, name + ": no range for what enters the cache", "calibrate the same model");
    const Pair s = MakePair(name, SignedEncoding(*cached));
    Dequantize(name + ".q", name + ".unsigned", p);
    Quantize(name + ".unsigned", name, s);
    Dequantize(name, name + ".real", s);
    real_[name] = name + ".real";
    ranges_[name] = *cached;
    pairs_[name] = s;
    return Ok();
  }

  const StaticGraph& from_;
  const KnownRanges& known_;
  MatrixStore& store_;
  const std::map<const model::Tensor*, CodedMatrix>& matrices_;
  std::shared_ptr<std::deque<std::vector<std::byte>>> bytes_;
  QuantizedGraph out_;
  std::map<std::string, std::string> real_;  // value: name of its dequantized form
  std::map<std::string, ValueRange> ranges_;
  std::map<std::string, Pair> pairs_;
};

}  // namespace

Encoding UnsignedEncoding(ValueRange range) {
  const float low = std::min(range.low, 0.0f), high = std::max({range.high, 0.0f, low + kLeastSpan});
  Encoding e;
  e.scale = (high - low) / 65535;
  e.zero = std::clamp(static_cast<int32_t>(std::nearbyint(-low / e.scale)), 0, 65535);
  return e;
}
Encoding SignedEncoding(ValueRange range) { return {std::max({-range.low, range.high, kLeastSpan}) / 32767, 0, ElementType::kInt16}; }
int32_t Encode(const Encoding& e, float v) {
  const bool is_signed = e.type == ElementType::kInt16;
  const float q = std::nearbyint(v / e.scale) + static_cast<float>(e.zero);
  return static_cast<int32_t>(std::clamp(q, is_signed ? -32768.0f : 0.0f, is_signed ? 32767.0f : 65535.0f));
}

Result<QuantizedGraph> QuantizeGraph(const StaticGraph& from, const KnownRanges& known, MatrixStore& store,
                                     const std::map<const model::Tensor*, CodedMatrix>& matrices) {
  Writer writer(from, known, store, matrices);
  SLM_ASSIGN_OR_RETURN(QuantizedGraph out, writer.Write());
  out.bytes = writer.bytes();
  return out;
}

}  // namespace slm::exporter
