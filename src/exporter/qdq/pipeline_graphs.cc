// See pipeline_graphs.h. GenAI's pipeline passes values from stage to stage by name and keeps them from call to call, so the cache needs no
// place of its own in it: the stage "host" gets what it gave before (an input with a default, for the first call), puts the entries of the
// last call into their slots, and gives the cache to the graph. An output under the name of an input would be taken away before the stage
// runs; hence the other names, which output_names_forwarder maps.
#include "exporter/qdq/pipeline_graphs.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>

#include "exporter/onnx_parts.h"

namespace slm::exporter {
namespace {
using onnx::ElementType;
using Names = std::vector<std::string>;

constexpr int64_t kOpset = 21, kIrVersion = 10;

ElementType TypeOf(const std::string& dtype) {
  return dtype == "U16" ? ElementType::kUint16 : dtype == "I16" ? ElementType::kInt16 : ElementType::kFloat;
}

onnx::Dim Fixed(int64_t n) { return {n, ""}; }
onnx::Dim Open(const char* symbol) { return {-1, symbol}; }

// A graph as it grows, with the bytes of its constants.
class Builder {
 public:
  explicit Builder(const char* name) { graph.name = name; }

  // Of one output, which gives it its name.
  std::string Add(const char* op, Names inputs, const std::string& output, std::vector<onnx::Attribute> attributes = {}) {
    graph.nodes.push_back({output, op, "", "", std::move(inputs), {output}, std::move(attributes)});
    return output;
  }
  void Tensor(const std::string& name, ElementType type, std::vector<int64_t> dims, std::vector<std::byte> bytes) {
    bytes_->push_back(std::move(bytes));
    onnx::Tensor t{.name = name, .type = type, .dims = std::move(dims), .data = bytes_->back()};
    graph.initializers.push_back(std::move(t));
  }
  std::string Numbers(const std::string& name, const std::vector<int64_t>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(int64_t));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    Tensor(name, ElementType::kInt64, {static_cast<int64_t>(values.size())}, std::move(bytes));
    return name;
  }
  std::string Number(const std::string& name, int64_t value) {
    Numbers(name, {value});
    graph.initializers.back().dims.clear();
    return name;
  }
  void Input(const std::string& name, ElementType type, std::vector<onnx::Dim> shape) {
    graph.inputs.push_back(TensorInfo(name, type, std::move(shape)));
  }
  void Output(const std::string& name, ElementType type, std::vector<onnx::Dim> shape) {
    graph.outputs.push_back(TensorInfo(name, type, std::move(shape)));
  }
  onnx::Model Take() {
    onnx::Model m;
    m.ir_version = kIrVersion;
    m.producer_name = "slmkit";
    m.opsets = {{"", kOpset}};
    m.graph = std::move(graph);
    m.storage = bytes_;
    return m;
  }

  onnx::Graph graph;

 private:
  std::shared_ptr<std::deque<std::vector<std::byte>>> bytes_ = std::make_shared<std::deque<std::vector<std::byte>>>();
};

class PipelineGraphs {
 public:
  PipelineGraphs(const StaticModel& built, const model::ModelConfig& c, const PipelineFacts& facts)
      : b_(built), c_(c), f_(facts), prefix_(static_cast<int64_t>(built.prefix_tokens.size())) {}

  GenAiPipeline Build() {
    Positions();
    for (const StaticInput& input : b_.inputs) Feed(input);
    Cache();
    if (prefix_ > 0) Logits();
    out_.host = host_.Take();
    out_.logits = logits_.Take();
    return std::move(out_);
  }

 private:
  ElementType input_type() const { return TypeOf(b_.input_dtype); }
  ElementType cache_type() const { return TypeOf(b_.cache_dtype); }

  const HostTensor* Host(const std::string& name) const {
    for (const HostTensor& t : b_.host)
      if (t.name == name) return &t;
    return nullptr;
  }
  // A tensor of the host file as an initializer.
  std::string Table(Builder& to, const std::string& name) {
    const HostTensor& t = *Host(name);
    to.Tensor("table." + name, TypeOf(t.dtype), t.dims, {});
    out_.places["table." + name] = {f_.host_file, f_.offsets.at(name)};
    return "table." + name;
  }

  // GenAI gives tokens [1, T], filled up to a chunk, and in past_seq_len the position of the last of them.
  void Positions() {
    Builder& h = host_;
    h.Input("input_ids", ElementType::kInt32, {Fixed(1), Open("T")});
    h.Input("past_seq_len", ElementType::kInt32, {Fixed(1), Fixed(1)});
    h.Input("total_seq_len", ElementType::kInt32, {Fixed(1)});  // GenAI gives the other only with this one
    h.Numbers("flat", {-1}), h.Numbers("one", {1}), h.Numbers("slots", {f_.context}), h.Numbers("prefix_tokens", {prefix_});
    h.Numbers("front", {0, 1}), h.Number("begin", 0), h.Number("step", 1), h.Number("top", f_.context - 1);
    h.Add("Cast", {"input_ids"}, "given", {Int("to", static_cast<int>(ElementType::kInt64))});
    h.Add("Reshape", {"given", "flat"}, "ids");
    h.Add("Shape", {"ids"}, "tokens");
    h.Add("Cast", {"past_seq_len"}, "last_slot", {Int("to", static_cast<int>(ElementType::kInt64))});
    h.Add("Reshape", {"last_slot", "flat"}, "last");
    h.Add("Sub", {"last", "tokens"}, "before");
    h.Add("Add", {"before", "one"}, "first");
    h.Add("Squeeze", {"tokens"}, "token_count");
    h.Add("Range", {"begin", "token_count", "step"}, "rows");
    h.Add("Add", {"rows", "first"}, "positions");
    h.Add("Clip", {"positions", "begin", "top"}, "table_rows");
    h.Add("Unsqueeze", {"table_rows", "front"}, "table_rows_4d");
    if (prefix_ > 0) CheckedTokens();
  }

  // A sequence that begins otherwise than with the prefix asks for a row that the table has not: the run fails, and the node's name says
  // why.
  void CheckedTokens() {
    Builder& h = host_;
    h.Numbers("prefix", {b_.prefix_tokens.begin(), b_.prefix_tokens.end()});
    h.Number("last_of_prefix", prefix_ - 1), h.Number("no_token", c_.vocab_size);
    h.Add("Less", {"positions", "prefix_tokens"}, "in_prefix");
    h.Add("Clip", {"positions", "begin", "last_of_prefix"}, "prefix_rows");
    h.Add("Gather", {"prefix", "prefix_rows"}, "wanted");
    h.Add("Equal", {"wanted", "ids"}, "same");
    h.Add("Not", {"same"}, "other");
    h.Add("And", {"in_prefix", "other"}, "wrong");
    h.Add("Where", {"wrong", "no_token", "ids"}, "checked_ids");
  }

  void Feed(const StaticInput& input) {
    Builder& h = host_;
    switch (input.kind) {
      case StaticInput::Kind::kTokenRows:
        h.Add("Gather", {Table(h, input.table), prefix_ > 0 ? "checked_ids" : "ids"}, input.name + ".rows");
        if (prefix_ > 0) h.graph.nodes.back().name = fmt::format("a_prompt_must_begin_with_token_{}", b_.prefix_tokens[0]);
        h.Numbers("batch", {0});
        h.Add("Unsqueeze", {input.name + ".rows", "batch"}, input.name);
        return h.Output(input.name, input_type(), {Fixed(1), Open("T"), Fixed(c_.d_model)});
      case StaticInput::Kind::kPositionRows:
        h.Add("Gather", {Table(h, input.table), "table_rows_4d"}, input.name);
        return h.Output(input.name, input_type(), {Fixed(1), Fixed(1), Open("T"), Fixed(Host(input.table)->dims[1])});
      case StaticInput::Kind::kMask: return Mask(input);
    }
  }

  // Columns are the S slots, then the tokens of the call, each a key at a position. A slot counts below the call's first position and in
  // the prefix, whose tokens in a call do not.
  void Mask(const StaticInput& input) {
    Builder& h = host_;
    if (!has_columns_) {
      std::vector<int64_t> all(static_cast<size_t>(f_.context));
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      h.Numbers("all_slots", all);
      h.Add("Max", {"first", "prefix_tokens"}, "filled");
      h.Add("Less", {"all_slots", "filled"}, "slot_counts");
      h.Add("GreaterOrEqual", {"positions", "prefix_tokens"}, "token_counts");
      h.Add("Concat", {"slot_counts", "token_counts"}, "counts", {Int("axis", 0)});
      h.Add("Concat", {"all_slots", "positions"}, "keys", {Int("axis", 0)});
      h.Add("Unsqueeze", {"positions", "one"}, "queries");
      h.Add("LessOrEqual", {"keys", "queries"}, "past");
      h.Add("And", {"counts", "past"}, "seen");
      h.Add("Sub", {"queries", "keys"}, "distance");
      has_columns_ = true;
    }
    std::string seen = "seen";
    const std::string& name = input.name;
    if (input.window > 0) {
      h.Number(name + ".window", input.window);
      h.Add("Less", {"distance", name + ".window"}, name + ".near");
      seen = h.Add("And", {"seen", name + ".near"}, name + ".seen");
    }
    h.Add("Cast", {seen}, name + ".choice", {Int("to", static_cast<int>(ElementType::kInt64))});
    h.Tensor(name + ".values", input_type(), {2}, MaskValues(input));
    h.Add("Gather", {name + ".values", name + ".choice"}, name + ".once");
    h.Add("Concat", Names(static_cast<size_t>(b_.mask_repeats), name + ".once"), name + ".heads", {Int("axis", 0)});
    h.Add("Unsqueeze", {name + ".heads", "front"}, name);
    h.Output(name, input_type(), {Fixed(1), Fixed(1), Open(""), Open("")});
  }

  std::vector<std::byte> MaskValues(const StaticInput& input) const {
    std::vector<std::byte> out;
    for (const double v : {input.masked, input.allowed}) {
      const auto f = static_cast<float>(v);
      const auto i = static_cast<int32_t>(v);  // of both 16-bit types the low half
      const auto* from = reinterpret_cast<const std::byte*>(b_.input_dtype == "F32" ? static_cast<const void*>(&f) : &i);
      out.insert(out.end(), from, from + (b_.input_dtype == "F32" ? 4 : 2));
    }
    return out;
  }

  // Slots before the last call's, its own entries (the prefix stays), and what was behind them: garbage of a call that was filled up, which
  // no mask shows before it is written anew. In the first call zeros fill the rest.
  void Cache() {
    Builder& h = host_;
    h.Numbers("zero", {0}), h.Numbers("end", {INT64_MAX}), h.Numbers("new_first", {0});
    h.Input("new_first", ElementType::kInt64, {Fixed(1)});
    h.Add("Max", {"new_first", "prefix_tokens"}, "kept_slots");
    h.Add("Sub", {"kept_slots", "new_first"}, "new_begin");
    h.Add("Sub", {"slots", "new_first"}, "new_end");
    h.Add("Shape", {"new_key.0"}, "new_tokens", {Int("start", 3), Int("end", 4)});
    h.Add("Add", {"new_first", "new_tokens"}, "rest_begin");
    const int64_t heads = c_.n_kv_heads, width = c_.head_dim;
    h.Numbers("key.front", {1, heads, width}), h.Numbers("value.front", {1, heads}), h.Numbers("value.back", {width});
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      Entries("key", layer, 3);
      Entries("value", layer, 2);
    }
    h.Add("Identity", {"first"}, "next_first");
    h.Output("next_first", ElementType::kInt64, {Fixed(1)});
  }

  std::vector<onnx::Dim> Shape(int axis, onnx::Dim n) const {
    std::vector<onnx::Dim> dims = {Fixed(1), Fixed(c_.n_kv_heads), Fixed(c_.head_dim)};
    dims.insert(dims.begin() + axis, std::move(n));
    return dims;
  }

  void Entries(const std::string& kind, int layer, int axis) {
    Builder& h = host_;
    const std::string past = fmt::format("past_{}.{}", kind, layer), fresh = fmt::format("new_{}.{}", kind, layer);
    const std::string own = fmt::format("{}.{}", kind, layer), along = kind + ".axis";
    Default(past, fmt::format("prefix_{}", own), axis);
    Default(fresh, "", axis);
    h.Input(past, cache_type(), Shape(axis, Open("held")));
    h.Input(fresh, cache_type(), Shape(axis, Open("fresh")));
    if (layer == 0) h.Numbers(along, {axis});
    h.Add("Slice", {past, "zero", "kept_slots", along}, own + ".kept");
    h.Add("Slice", {fresh, "new_begin", "new_end", along}, own + ".new");
    h.Add("Slice", {past, "rest_begin", "end", along}, own + ".rest");
    if (layer == 0) Zeros(kind, axis);
    h.Add("Concat", {own + ".kept", own + ".new", own + ".rest", kind + ".zeros"}, "cache_" + own, {Int("axis", axis)});
    h.Output("cache_" + own, cache_type(), Shape(axis, Fixed(f_.context)));
  }

  // As many as the first call lacks.
  void Zeros(const std::string& kind, int axis) {
    Builder& h = host_;
    std::string left = "slots";
    for (const char* part : {"kept", "new", "rest"}) {
      const std::string n = fmt::format("{}.0.{}", kind, part);
      h.Add("Shape", {n}, n + ".size", {Int("start", axis), Int("end", axis + 1)});
      left = h.Add("Sub", {left, n + ".size"}, n + ".left");
    }
    Names shape = {kind + ".front", left};
    if (axis == 2) shape.push_back(kind + ".back");
    h.Add("Concat", shape, kind + ".missing", {Int("axis", 0)});
    onnx::Attribute value;
    value.name = "value";
    value.kind = onnx::Attribute::Kind::kTensor;
    value.tensors.push_back({.name = "", .type = cache_type(), .dims = {1}, .data = {kNothing, b_.cache_dtype == "F32" ? 4U : 2U}});
    h.Add("ConstantOfShape", {kind + ".missing"}, kind + ".zeros", {value});
  }

  // What an input is until something was given: the prefix, else one slot of zeros.
  void Default(const std::string& name, const std::string& prefix, int axis) {
    const HostTensor* t = prefix.empty() ? nullptr : Host(prefix);
    std::vector<int64_t> dims = {1, c_.n_kv_heads, c_.head_dim};
    dims.insert(dims.begin() + axis, t ? prefix_ : 1);
    if (!t) {
      const auto bytes = static_cast<size_t>(c_.n_kv_heads) * static_cast<size_t>(c_.head_dim) * (b_.cache_dtype == "F32" ? 4 : 2);
      return host_.Tensor(name, cache_type(), std::move(dims), std::vector<std::byte>(bytes));
    }
    host_.Tensor(name, cache_type(), std::move(dims), {});
    out_.places[name] = {f_.host_file, f_.offsets.at(prefix)};
  }

  // Of a prompt that ends within the prefix, what the folder knows; else the graph's.
  void Logits() {
    Builder& h = host_;
    h.Add("Add", {"rows", "prefix_tokens"}, "computed_rows");
    h.Add("Where", {"in_prefix", "positions", "computed_rows"}, "logit_rows");
    h.Output("logit_rows", ElementType::kInt64, {Open("T")});
    Builder& l = logits_;
    l.Input("logits", ElementType::kFloat, {Fixed(1), Open("T"), Fixed(c_.vocab_size)});
    l.Input("logit_rows", ElementType::kInt64, {Open("T")});
    l.Numbers("flat", {-1, c_.vocab_size}), l.Numbers("batch", {0});
    l.Add("Reshape", {"logits", "flat"}, "computed");
    l.Add("Concat", {Table(l, kPrefixLogits), "computed"}, "all", {Int("axis", 0)});
    l.Add("Gather", {"all", "logit_rows"}, "chosen");
    l.Add("Unsqueeze", {"chosen", "batch"}, "next_logits");
    l.Output("next_logits", ElementType::kFloat, {Fixed(1), Open("T"), Fixed(c_.vocab_size)});
  }

  static constexpr std::byte kNothing[4] = {};
  const StaticModel& b_;
  const model::ModelConfig& c_;
  const PipelineFacts& f_;
  const int64_t prefix_;
  Builder host_{"host"}, logits_{"logits"};
  bool has_columns_ = false;
  GenAiPipeline out_;
};

}  // namespace

GenAiPipeline BuildPipelineGraphs(const StaticModel& built, const model::ModelConfig& c, const PipelineFacts& facts) {
  return PipelineGraphs(built, c, facts).Build();
}

}  // namespace slm::exporter
