// A decoder graph as the ONNX graph that ONNX Runtime GenAI's CPU models have; see exporter.h. The token axis T becomes [batch, sequence];
// a GroupQueryAttention gets its past and present, and the lengths that the attention mask says.
#include <fmt/format.h>

#include <set>

#include "exporter/exporter.h"
#include "exporter/genai/initializers.h"
#include "exporter/onnx_parts.h"

namespace slm::exporter {
namespace {
using graph::AttrKey;
using graph::kNoValue;
using graph::Op;
using graph::ValueId;
using onnx::Attribute;
using onnx::ElementType;

constexpr const char* kMicrosoft = "com.microsoft";

class GenAiBuilder {
 public:
  GenAiBuilder(const graph::Graph& g, Accuracy accuracy)
      : g_(g), c_(g.model->config), accuracy_(accuracy), weights_(g, &out_.model.graph) {}

  Result<GenAiModel> Build() {
    onnx::Model& m = out_.model;
    m.ir_version = 10;
    m.producer_name = "slmkit";
    m.opsets = {{"", 21}, {kMicrosoft, 1}};
    m.graph.name = c_.name.empty() ? "decoder" : c_.name;
    Inputs();
    for (const graph::Node& n : g_.nodes) SLM_RETURN_IF_ERROR(Convert(n));
    Outputs();
    if (!widened_.empty())
      out_.notes.push_back(fmt::format("the weights of {}{} are f32: the operator has no place for their form", widened_[0],
                                       widened_.size() > 1 ? fmt::format(" and {} more", widened_.size() - 1) : ""));
    m.storage = weights_.bytes();
    return std::move(out_);
  }

 private:
  using Names = std::vector<std::string>;

  void Emit(const char* domain, const char* op, const std::string& name, Names inputs, Names outputs,
            std::vector<Attribute> attributes = {}) {
    onnx::Node n;
    n.name = name, n.op_type = op, n.domain = domain;
    n.inputs = std::move(inputs), n.outputs = std::move(outputs), n.attributes = std::move(attributes);
    out_.model.graph.nodes.push_back(std::move(n));
  }
  // A node with one output that has the node's name.
  std::string Step(const char* op, const std::string& name, Names inputs, std::vector<Attribute> attributes = {}) {
    Emit("", op, name, std::move(inputs), {name}, std::move(attributes));
    return name;
  }

  static onnx::Dim Open(const char* symbol) { return {-1, symbol}; }
  onnx::ValueInfo Cache(const std::string& name, const char* length) const {
    return TensorInfo(name, ElementType::kFloat, {Open("batch_size"), {c_.n_kv_heads, ""}, Open(length), {c_.head_dim, ""}});
  }
  static std::string CacheName(const char* when, int64_t layer, const char* what) { return fmt::format("{}.{}.{}", when, layer, what); }

  // The lengths of the sequence so far, as GroupQueryAttention wants them: seqlens_k [B] i32 (tokens less one), total [] i32.
  void Inputs() {
    onnx::Graph& g = out_.model.graph;
    g.inputs.push_back(TensorInfo("input_ids", ElementType::kInt64, {Open("batch_size"), Open("sequence_length")}));
    g.inputs.push_back(TensorInfo("attention_mask", ElementType::kInt64, {Open("batch_size"), Open("total_sequence_length")}));
    for (int i = 0; i < c_.n_layers; ++i)
      for (const char* what : {"key", "value"}) g.inputs.push_back(Cache(CacheName("past_key_values", i, what), "past_sequence_length"));
    const std::string one = weights_.Integers("one", {1}, {1});
    const std::string tokens = Step("ReduceSum", "mask.tokens", {"attention_mask", one}, {Int("keepdims", 0)});
    const std::string last = Step("Sub", "mask.last", {tokens, one});
    seqlens_ = Step("Cast", "seqlens_k", {last}, {Int("to", static_cast<int64_t>(ElementType::kInt32))});
    const std::string shape = Step("Shape", "mask.shape", {"attention_mask"});
    const std::string length = Step("Gather", "mask.length", {shape, weights_.Integers("one.scalar", {}, {1})}, {Int("axis", 0)});
    total_ = Step("Cast", "total_sequence_length", {length}, {Int("to", static_cast<int64_t>(ElementType::kInt32))});
  }

  void Outputs() {
    onnx::Graph& g = out_.model.graph;
    g.outputs.push_back(TensorInfo("logits", ElementType::kFloat, {Open("batch_size"), {1, ""}, {c_.vocab_size, ""}}));
    for (int i = 0; i < c_.n_layers; ++i)
      for (const char* what : {"key", "value"}) g.outputs.push_back(Cache(CacheName("present", i, what), "total_sequence_length"));
  }

  std::string NameOf(ValueId v) {
    if (v == kNoValue) return "";
    if (v == g_.input_ids) return "input_ids";
    if (v == g_.output_logits) return "logits";
    return g_.IsConstant(v) ? weights_.Fixed(v) : g_.values[static_cast<size_t>(v)].name;
  }

  Status Convert(const graph::Node& n) {
    const std::string out = NameOf(n.outputs[0]);
    const auto in = [&](size_t i) { return NameOf(n.inputs[i]); };
    const auto same = [&](const char* op) {
      Names inputs;
      for (const ValueId v : n.inputs) inputs.push_back(NameOf(v));
      Emit("", op, n.name, std::move(inputs), {out});
    };
    switch (n.op) {
      case Op::kGather: Embed(n, out); break;
      case Op::kGemm: Product(n, out); break;
      case Op::kAdd: same("Add"); break;
      case Op::kMul: same("Mul"); break;
      case Op::kDiv: same("Div"); break;
      case Op::kTanh: same("Tanh"); break;
      case Op::kSigmoid: same("Sigmoid"); break;
      case Op::kSwish: Emit("", "Mul", n.name, {in(0), Step("Sigmoid", n.name + ".sigmoid", {in(0)})}, {out}); break;
      case Op::kGelu: Emit("", "Gelu", n.name, {in(0)}, {out}, {Text("approximate", n.String(AttrKey::kApproximate, "none"))}); break;
      case Op::kReshape: Reshape(n, out); break;
      case Op::kRmsNorm:
        Emit("", "SimplifiedLayerNormalization", n.name, {in(0), in(1)}, {out},
             {Int("axis", -1), Float("epsilon", n.Float(AttrKey::kEpsilon)), Int("stash_type", 1)});
        break;
      case Op::kSkipRmsNorm:
        Emit(kMicrosoft, "SkipSimplifiedLayerNormalization", n.name, {in(0), in(1), in(2)}, {out, "", "", NameOf(n.outputs[1])},
             {Float("epsilon", n.Float(AttrKey::kEpsilon))});
        break;
      case Op::kGroupQueryAttention: return Attention(n, out);
      default:
        return Error(Code::kUnsupported, fmt::format("{}: {} has no form in ONNX Runtime GenAI's models", n.name, graph::Info(n.op).name),
                     "leave out the pass that makes it");
    }
    return Ok();
  }

  bool HasBlocks(ValueId v) const {
    const graph::Value& value = g_.values[static_cast<size_t>(v)];
    return value.constant && FormOf(*value.constant) == Stored::kBlocks;
  }

  void Embed(const graph::Node& n, const std::string& out) {
    const ValueId table = n.inputs[0];
    const graph::Constant& constant = *g_.values[static_cast<size_t>(table)].constant;
    if (HasBlocks(table) && !HasOffsets(constant)) {  // which the operator has no place for
      const Initializers::Blocks& b = weights_.BlocksOf(table);
      Names inputs{weights_.FlatCodes(table), NameOf(n.inputs[1]), b.scales};
      if (!b.zeros.empty()) inputs.push_back(b.zeros);
      Emit(kMicrosoft, "GatherBlockQuantized", n.name, std::move(inputs), {out},
           {Int("bits", b.bits), Int("block_size", b.block), Int("gather_axis", 0), Int("quantize_axis", 1)});
      return;
    }
    if (IsQuantized(constant)) widened_.push_back(n.name);
    Emit("", "Gather", n.name, {weights_.Fixed(table), NameOf(n.inputs[1])}, {out}, {Int("axis", 0)});
  }

  void Product(const graph::Node& n, const std::string& out) {
    std::string x = NameOf(n.inputs[0]);
    if (n.layer < 0)  // the head: the logits of the last token are all that decoding reads
      x = Step("Gather", n.name + ".last_token", {x, weights_.Integers("last", {1}, {-1})}, {Int("axis", 1)});
    const bool bias = n.inputs.size() > 2;
    const std::string product = bias ? n.name + ".product" : out;
    const ValueId w = n.inputs[1];
    if (HasBlocks(w)) {
      const Initializers::Blocks& b = weights_.BlocksOf(w);
      Names inputs{x, b.codes, b.scales};
      if (!b.zeros.empty()) inputs.push_back(b.zeros);
      const std::string codes = b.offsets.empty() ? product : n.name + ".codes";
      Emit(kMicrosoft, "MatMulNBits", n.name, std::move(inputs), {codes},
           {Int("K", b.k), Int("N", b.n), Int("bits", b.bits), Int("block_size", b.block),
            Int("accuracy_level", static_cast<int64_t>(accuracy_))});
      if (!b.offsets.empty()) {
        const std::string rest = Step("MatMul", n.name + ".offsets", {BlockSums(x, b.block), b.offsets});
        Emit("", "Add", n.name + ".add_offsets", {codes, rest}, {product});
      }
    } else {
      if (IsQuantized(*g_.values[static_cast<size_t>(w)].constant)) widened_.push_back(n.name);
      Emit("", "MatMul", n.name, {x, weights_.Transposed(w)}, {product});
    }
    if (bias) Emit("", "Add", n.name + ".add_bias", {product, NameOf(n.inputs[2])}, {out});
  }

  // Sums over the blocks of a row of x [B, T, K]: [B, T, K / block]. Products that share their input share them.
  std::string BlockSums(const std::string& x, int64_t block) {
    const std::string name = fmt::format("{}.sums_of_{}", x, block);
    if (!sums_.insert(name).second) return name;
    const std::string blocks =
        Step("Reshape", name + ".blocks", {x, weights_.Integers(fmt::format("blocks_of_{}", block), {4}, {0, 0, -1, block})});
    return Step("ReduceSum", name, {blocks, weights_.Integers("last", {1}, {-1})}, {Int("keepdims", 0)});
  }

  // T stands for batch and sequence, which keep their places.
  void Reshape(const graph::Node& n, const std::string& out) {
    const graph::Shape& shape = g_.values[static_cast<size_t>(n.outputs[0])].shape;
    std::vector<int64_t> target{0, 0};
    target.insert(target.end(), shape.begin() + 1, shape.end());
    const int64_t rank = static_cast<int64_t>(target.size());
    Emit("", "Reshape", n.name, {NameOf(n.inputs[0]), weights_.Integers(n.name + ".shape", {rank}, target)}, {out});
  }

  // What ONNX Runtime's CPU kernel of the operator asks for; it would fail at the first run.
  Status CheckHead(const graph::Node& n) const {
    const int64_t rotated = n.Int(AttrKey::kDoRotary) != 0 ? n.Int(AttrKey::kRotaryDim) : 0;
    if (c_.head_dim % 16 == 0 && rotated % 16 == 0) return Ok();
    return Error(Code::kUnsupported,
                 fmt::format("{}: heads of {} values, {} of them rotated; ONNX Runtime's GroupQueryAttention takes multiples of 16", n.name,
                             c_.head_dim, rotated),
                 "run the model with slm, or export it to GGUF");
  }

  Status Attention(const graph::Node& n, const std::string& out) {
    SLM_RETURN_IF_ERROR(CheckHead(n));
    const int64_t layer = n.Int(AttrKey::kLayer);
    const bool rotates = n.Int(AttrKey::kDoRotary) != 0;
    Names inputs;
    for (const int i : {graph::kGqaQuery, graph::kGqaKey, graph::kGqaValue}) inputs.push_back(NameOf(n.inputs[static_cast<size_t>(i)]));
    for (const char* what : {"key", "value"}) inputs.push_back(CacheName("past_key_values", layer, what));
    inputs.push_back(seqlens_);
    inputs.push_back(total_);
    if (rotates)
      for (const int i : {graph::kGqaCos, graph::kGqaSin}) inputs.push_back(weights_.Fixed(n.inputs[static_cast<size_t>(i)]));
    std::vector<Attribute> attributes{
        Int("num_heads", n.Int(AttrKey::kNumHeads)), Int("kv_num_heads", n.Int(AttrKey::kKvNumHeads)),
        Float("scale", n.Float(AttrKey::kScale)),    Int("local_window_size", n.Int(AttrKey::kLocalWindow, -1)),
        Int("do_rotary", rotates ? 1 : 0),           Int("rotary_interleaved", n.Int(AttrKey::kInterleaved))};
    if (const float softcap = n.Float(AttrKey::kSoftcap); softcap != 0) attributes.push_back(Float("softcap", softcap));
    Emit(kMicrosoft, "GroupQueryAttention", n.name, std::move(inputs),
         {out, CacheName("present", layer, "key"), CacheName("present", layer, "value")}, std::move(attributes));
    return Ok();
  }

  const graph::Graph& g_;
  const model::ModelConfig& c_;
  const Accuracy accuracy_;
  GenAiModel out_;
  Initializers weights_;
  std::string seqlens_, total_;
  std::set<std::string> sums_;
  std::vector<std::string> widened_;  // nodes whose quantized weights became f32
};

}  // namespace

std::vector<std::string> PassesOffForGenAi() { return {"fuse_qkv", "fuse_gate_up"}; }

Result<GenAiModel> BuildGenAiModel(const graph::Graph& g, Accuracy accuracy) { return GenAiBuilder(g, accuracy).Build(); }

}  // namespace slm::exporter
