// See qdq.h: two static graphs from one decoder, and what the host needs beside them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "exporter/qdq/quantize.h"

namespace slm::exporter {
namespace {
using graph::Op;
using graph::ValueId;
using model::PrefixCache;
using model::ValueRange;
using onnx::ElementType;
using ByteSink = std::function<Status(std::span<const std::byte>)>;

constexpr int64_t kOpset = 23, kIrVersion = 11;  // the first with RMSNormalization
constexpr float kFloatMask = -10000;             // e^-10000 is 0
constexpr int64_t kRowsAtOnce = 1024;            // of a table

// Values as elements of a table or of an input.
std::vector<std::byte> Elements(const std::vector<float>& values, const Encoding* e) {
  std::vector<std::byte> out(values.size() * (e ? 2 : 4));
  if (!e) {
    std::memcpy(out.data(), values.data(), out.size());
    return out;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint16_t>(Encode(*e, values[i]));
    std::memcpy(out.data() + 2 * i, &code, 2);
  }
  return out;
}

class ModelBuilder {
 public:
  ModelBuilder(const graph::Graph& g, const StaticOptions& o, const Calibrated& calibrated)
      : g_(g), c_(g.model->config), o_(o), calibrated_(calibrated), store_(g) {}

  Result<StaticModel> Build() {
    SLM_RETURN_IF_ERROR(Check());
    SLM_ASSIGN_OR_RETURN(StaticGraph prefill, BuildStaticGraph(g_, o_.chunk, o_.context, o_.keys));
    SLM_ASSIGN_OR_RETURN(StaticGraph decode, BuildStaticGraph(g_, o_.decode, o_.context, o_.keys));
    out_.inputs = prefill.inputs;
    out_.mask_repeats = prefill.mask_repeats;
    embedding_factor_ = prefill.embedding_factor;
    if (quantized()) {
      SLM_RETURN_IF_ERROR(GatherRanges(prefill));
      SLM_ASSIGN_OR_RETURN(QuantizedGraph first, QuantizeGraph(prefill, known_, store_, calibrated_.matrices));
      SLM_ASSIGN_OR_RETURN(QuantizedGraph second, QuantizeGraph(decode, known_, store_, calibrated_.matrices));
      encodings_ = first.inputs;
      Take(std::move(first.graph), {prefill.bytes, first.bytes, store_.bytes()}, &out_.prefill);
      Take(std::move(second.graph), {decode.bytes, second.bytes, store_.bytes()}, &out_.decode);
    } else {
      Take(WithFloats(prefill), {prefill.bytes, store_.bytes()}, &out_.prefill);
      Take(WithFloats(decode), {decode.bytes, store_.bytes()}, &out_.decode);
    }
    out_.input_dtype = quantized() ? "U16" : "F32";
    out_.cache_dtype = quantized() ? "I16" : "F32";
    for (StaticInput& input : out_.inputs) Describe(&input);
    SLM_RETURN_IF_ERROR(AddTables());
    if (quantized()) {
      out_.prefix_tokens = calibrated_.prefix_tokens;
      AddPrefix();
      AddScales();
    }
    return std::move(out_);
  }

 private:
  bool quantized() const { return o_.activations == Activations::kUint16; }

  Status Check() const {
    if (o_.chunk < 1 || o_.chunk > o_.context)
      return Error(Code::kInvalidArgument, fmt::format("chunks of {} tokens in a context of {}", o_.chunk, o_.context),
                   "give a larger context or a smaller chunk");
    if (o_.decode < 1 || o_.decode >= o_.chunk)
      return Error(Code::kInvalidArgument, fmt::format("a decode graph of {} tokens beside chunks of {}", o_.decode, o_.chunk),
                   "give it fewer tokens than a chunk has");
    const std::vector<PrefixCache>& prefix = calibrated_.prefix;
    const size_t tokens = calibrated_.prefix_tokens.size();
    const size_t values = tokens * static_cast<size_t>(c_.n_kv_heads) * static_cast<size_t>(c_.head_dim);
    const auto fits = [&](const PrefixCache& p) { return p.keys.size() == values && p.values.size() == values; };
    const bool has_layers = (tokens == 0 && prefix.empty()) || prefix.size() == static_cast<size_t>(c_.n_layers);
    if (quantized() && (!has_layers || !std::all_of(prefix.begin(), prefix.end(), fits)))
      return Error(Code::kInvalidArgument, fmt::format("the prefix of {} tokens lacks keys or values of a layer", tokens),
                   "calibrate the same model");
    if (quantized() && tokens >= static_cast<size_t>(o_.context))
      return Error(Code::kInvalidArgument, "the prefix fills the context", "give a larger context");
    if (quantized() && calibrated_.prefix_logits.size() != tokens * static_cast<size_t>(c_.vocab_size))
      return Error(Code::kInvalidArgument, fmt::format("the prefix of {} tokens lacks logits", tokens), "calibrate the same model");
    return Ok();
  }

  void Take(onnx::Graph graph, std::vector<std::shared_ptr<const void>> bytes, onnx::Model* to) const {
    to->ir_version = kIrVersion;
    to->producer_name = "slmkit";
    to->opsets = {{"", kOpset}};
    to->graph = std::move(graph);
    to->storage = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(bytes));
  }

  // Float constants as initializers. Vectors are kept with the matrices.
  onnx::Graph WithFloats(const StaticGraph& from) {
    onnx::Graph g = from.graph;
    for (const auto& [name, use] : from.matrices) g.initializers.push_back(store_.Floats(name, use));
    for (const auto& [name, vector] : from.vectors) g.initializers.push_back(store_.Vector(name, vector));
    return g;
  }

  Status GatherRanges(const StaticGraph& from) {
    ranges_ = calibrated_.ranges;
    for (const graph::Node& n : g_.nodes) {
      if (n.op != Op::kGroupQueryAttention || calibrated_.prefix.empty()) continue;
      const PrefixCache& p = calibrated_.prefix[static_cast<size_t>(n.Int(graph::AttrKey::kLayer))];
      for (const auto& [input, values] : {std::pair{graph::kGqaKey, &p.keys}, {graph::kGqaValue, &p.values}}) {
        const auto it = ranges_.find(g_.values[n.inputs[static_cast<size_t>(input)]].name);
        if (it == ranges_.end()) continue;
        for (const float v : *values) it->second = {std::min(it->second.low, v), std::max(it->second.high, v)};
      }
    }
    known_.ranges = &ranges_;
    known_.margin = o_.range_margin;
    float spread = 0;
    for (const std::string& sum : from.masked_scores) {
      const auto it = ranges_.find(sum.substr(0, sum.rfind('.')) + ".scores");
      if (it == ranges_.end()) return Error(Code::kInvalidArgument, sum + ": no range for its scores", "calibrate the same model");
      spread = std::max(spread, (it->second.high - it->second.low) * o_.range_margin);
    }
    masked_ = -(spread + 2 * kMaskMargin);
    for (const StaticInput& input : from.inputs) {
      ValueRange& r = known_.inputs[input.name];
      if (input.kind == StaticInput::Kind::kMask) r = {masked_, 0};
      else if (input.kind == StaticInput::Kind::kTokenRows) r = TableSpan();
      else r = PositionSpan(input.table);
    }
    return Ok();
  }

  const graph::Node& Embedding() const {
    return *std::find_if(g_.nodes.begin(), g_.nodes.end(), [](const graph::Node& n) { return n.op == Op::kGather; });
  }
  // Rows [begin, end) of the embedding as the graph's input has them.
  std::vector<float> TableRows(const model::Tensor& table, int64_t begin, int64_t end) const {
    std::vector<float> rows(static_cast<size_t>((end - begin) * c_.d_model));
    model::ReadRows(table, begin, end, rows.data());
    for (float& v : rows) v *= embedding_factor_;
    return rows;
  }
  const model::Tensor& Table() const { return *g_.values[Embedding().inputs[0]].constant->parts[0].tensor; }
  ValueRange TableSpan() const {
    ValueRange r;
    for (int64_t at = 0; at < c_.vocab_size; at += kRowsAtOnce)
      for (const float v : TableRows(Table(), at, std::min<int64_t>(at + kRowsAtOnce, c_.vocab_size)))
        r = {std::min(r.low, v), std::max(r.high, v)};
    return r;
  }
  // cos or sin [S, R / 2] by the table's name.
  const graph::Value& PositionTable(const std::string& name) const {
    return *std::find_if(g_.values.begin(), g_.values.end(), [&](const graph::Value& v) { return v.name == name; });
  }
  ValueRange PositionSpan(const std::string& name) const {
    float most = 1;  // an attention factor of LongRoPE is above
    for (const float v : PositionTable(name).constant->data) most = std::max(most, std::abs(v));
    return {-most, most};
  }

  const Encoding* EncodingOf(const std::string& input) const {
    const auto it = encodings_.find(input);
    return it == encodings_.end() ? nullptr : &it->second;
  }

  void Describe(StaticInput* input) const {
    if (input->kind != StaticInput::Kind::kMask) return;
    const Encoding* e = EncodingOf(input->name);
    input->allowed = e ? Encode(*e, 0) : 0.0;
    input->masked = e ? Encode(*e, masked_) : static_cast<double>(kFloatMask);
  }

  Status AddTables() {
    for (const StaticInput& input : out_.inputs) {
      if (input.kind == StaticInput::Kind::kMask) continue;
      const Encoding* known = EncodingOf(input.name);
      const std::optional<Encoding> e = known ? std::optional(*known) : std::nullopt;
      HostTensor t{.name = input.table, .dtype = out_.input_dtype, .dims = {}, .write = {}, .bytes = 0};
      if (input.kind == StaticInput::Kind::kTokenRows) {
        t.dims = {c_.vocab_size, c_.d_model};
        t.write = [writer = TableWriter{&Table(), c_.vocab_size, c_.d_model, embedding_factor_, e}](const ByteSink& sink) {
          return writer.Write(sink);
        };
      } else {
        const graph::Value& table = PositionTable(input.table);
        const int64_t half = table.shape[1];
        t.dims = {o_.context, 2 * half};
        std::vector<float> both;  // each value for both halves of a head
        for (int64_t p = 0; p < o_.context; ++p)
          for (int64_t j = 0; j < 2 * half; ++j) both.push_back(table.constant->data[static_cast<size_t>(p * half + j % half)]);
        t.write = [bytes = Elements(both, e ? &*e : nullptr)](const ByteSink& sink) { return sink(bytes); };
      }
      t.bytes = static_cast<uint64_t>(t.dims[0] * t.dims[1]) * (e ? 2 : 4);
      out_.host.push_back(std::move(t));
    }
    return Ok();
  }

  struct TableWriter {
    const model::Tensor* table;
    int64_t rows, width;
    float factor;
    std::optional<Encoding> encoding;
    Status Write(const ByteSink& sink) const {
      std::vector<float> part;
      for (int64_t at = 0; at < rows; at += kRowsAtOnce) {
        const int64_t end = std::min(at + kRowsAtOnce, rows);
        part.resize(static_cast<size_t>((end - at) * width));
        model::ReadRows(*table, at, end, part.data());
        for (float& v : part) v *= factor;
        SLM_RETURN_IF_ERROR(sink(Elements(part, encoding ? &*encoding : nullptr)));
      }
      return Ok();
    }
  };

  // Keys [Hkv, D, tokens] and values [Hkv, tokens, D] of the prefix, as the cache holds them.
  void AddPrefix() {
    const auto p = static_cast<int64_t>(calibrated_.prefix_tokens.size());
    const int64_t hkv = c_.n_kv_heads, d = c_.head_dim;
    for (const graph::Node& n : g_.nodes) {
      if (n.op != Op::kGroupQueryAttention || p == 0) continue;
      const int64_t layer = n.Int(graph::AttrKey::kLayer);
      const PrefixCache& cache = calibrated_.prefix[static_cast<size_t>(layer)];
      const HeadOrder order = KeyOrder(n.inputs[graph::kGqaKey]);
      std::vector<float> keys(static_cast<size_t>(hkv * d * p)), values(keys.size());
      for (int64_t t = 0; t < p; ++t)
        for (int64_t row = 0; row < hkv * d; ++row) {
          const int64_t from = order.heads == 0 ? row : order.Source(row);
          keys[static_cast<size_t>(row * p + t)] = cache.keys[static_cast<size_t>(t * hkv * d + from)];
          values[static_cast<size_t>((row / d * p + t) * d + row % d)] = cache.values[static_cast<size_t>(t * hkv * d + row)];
        }
      AddPrefixTensor(fmt::format("prefix_key.{}", layer), {hkv, d, p}, keys, *EncodingOf(fmt::format("past_key.{}", layer)));
      AddPrefixTensor(fmt::format("prefix_value.{}", layer), {hkv, p, d}, values, *EncodingOf(fmt::format("past_value.{}", layer)));
    }
    if (p > 0) AddHostTensor(kPrefixLogits, "F32", {p, c_.vocab_size}, Elements(calibrated_.prefix_logits, nullptr));
  }
  void AddPrefixTensor(const std::string& name, std::vector<int64_t> dims, const std::vector<float>& values, const Encoding& e) {
    AddHostTensor(name, out_.cache_dtype, std::move(dims), Elements(values, &e));
  }
  void AddHostTensor(const std::string& name, const std::string& dtype, std::vector<int64_t> dims, std::vector<std::byte> bytes) {
    const uint64_t n_bytes = bytes.size();
    out_.host.push_back({.name = name,
                         .dtype = dtype,
                         .dims = std::move(dims),
                         .write = [bytes = std::move(bytes)](const ByteSink& sink) { return sink(bytes); },
                         .bytes = n_bytes});
  }
  void AddScales() {
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      out_.key_scales.push_back(EncodingOf(fmt::format("past_key.{}", layer))->scale);
      out_.value_scales.push_back(EncodingOf(fmt::format("past_value.{}", layer))->scale);
    }
  }
  HeadOrder KeyOrder(ValueId keys) const {
    const int i = g_.ProducerOf(keys);
    const graph::Node& n = g_.nodes[static_cast<size_t>(i)];
    if (n.op != Op::kRotary || n.Int(graph::AttrKey::kInterleaved) == 0) return {};
    return {n.Int(graph::AttrKey::kNumHeads), c_.head_dim, n.Int(graph::AttrKey::kRotaryDim)};
  }

  const graph::Graph& g_;
  const model::ModelConfig& c_;
  const StaticOptions& o_;
  const Calibrated& calibrated_;
  MatrixStore store_;
  StaticModel out_;
  float embedding_factor_ = 1, masked_ = kFloatMask;
  std::map<std::string, ValueRange> ranges_;
  KnownRanges known_;
  std::map<std::string, Encoding> encodings_;
};

}  // namespace

Result<StaticModel> BuildStaticModel(const graph::Graph& g, const StaticOptions& options, const Calibrated& calibrated) {
  return ModelBuilder(g, options, calibrated).Build();
}

}  // namespace slm::exporter
