// See static_decoder.h. docs/npu.md says how a host feeds such graphs; here the host is a graph, too.
#include "importer/static_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "model/quoted.h"

namespace slm::importer {
namespace {

using model::Quoted;
using onnx::ElementType;
using onnx::StaticElement;
using onnx::StaticGraphInput;
using Names = std::vector<std::string>;

constexpr float kHidden = -1e9F;     // of a mask
constexpr double kLeastHidden = 20;  // by how much a quantized mask lowers a score at least: a weight of 2e-9

std::string PastName(const char* kind, int layer) { return fmt::format("past_{}.{}", kind, layer); }
std::string EntryName(const char* kind, int layer) { return fmt::format("{}.{}", kind, layer); }
std::string CacheName(const std::string& pattern, int layer) {
  return std::string(pattern).replace(pattern.find("%d"), 2, std::to_string(layer));
}

Error Lacks(const std::string& what) {
  return Error(Code::kCorrupt, what, "manifest.json and the graph do not fit each other: export the folder again");
}

onnx::Attribute Number(const char* name, std::vector<int64_t> values, onnx::Attribute::Kind kind) {
  onnx::Attribute a;
  a.name = name;
  a.kind = kind;
  a.ints = std::move(values);
  return a;
}

// A stage that is made here, with the bytes of its constants.
class Maker {
 public:
  Maker(std::string name, const std::vector<onnx::Opset>& opsets) {
    stage_.name = std::move(name);
    stage_.file = "manifest.json: " + stage_.name;
    model_->opsets = opsets;
    model_->storage = bytes_;
  }
  std::string Add(const char* op, Names inputs, const std::string& output, std::vector<onnx::Attribute> attributes = {}) {
    model_->graph.nodes.push_back({output, op, "", "", std::move(inputs), {output}, std::move(attributes)});
    return output;
  }
  template <class T>
  std::string Tensor(const std::string& name, ElementType type, std::vector<int64_t> dims, const std::vector<T>& values) {
    std::vector<std::byte>& kept = bytes_->emplace_back(values.size() * sizeof(T));
    std::memcpy(kept.data(), values.data(), kept.size());
    onnx::Tensor t;
    t.name = name, t.type = type, t.dims = std::move(dims), t.data = kept;
    model_->graph.initializers.push_back(std::move(t));
    return name;
  }
  std::string Whole(const std::string& name, const std::vector<int64_t>& values) {
    return Tensor(name, ElementType::kInt64, {static_cast<int64_t>(values.size())}, values);
  }
  std::string One(const std::string& name, int64_t value) { return Tensor<int64_t>(name, ElementType::kInt64, {}, {value}); }
  void Input(const std::string& name, ElementType type, const std::vector<int64_t>& dims) {
    onnx::ValueInfo v;
    v.name = name;
    v.type.kind = onnx::ValueType::Kind::kTensor;
    v.type.element = type;
    v.type.has_shape = true;
    for (const int64_t d : dims) v.type.shape.push_back({d, ""});
    model_->graph.inputs.push_back(std::move(v));
    stage_.inputs.push_back(name);
  }
  void Output(const std::string& name) {
    model_->graph.outputs.push_back({name, {}});
    stage_.outputs.push_back(name);
  }
  StageGraph Take() { return {std::move(stage_), std::move(model_)}; }

 private:
  onnx::GenAiStage stage_;
  std::shared_ptr<onnx::Model> model_ = std::make_shared<onnx::Model>();
  std::shared_ptr<std::deque<std::vector<std::byte>>> bytes_ = std::make_shared<std::deque<std::vector<std::byte>>>();
};

// What a whole number of an input stands for.
struct Encoding {
  float scale = 1;
  int32_t zero = 0;
  float Value(int32_t code) const { return static_cast<float>(code - zero) * scale; }
};

class Stages {
 public:
  Stages(const onnx::StaticFolder& f, onnx::Model m)
      : f_(f),
        m_(f.manifest),
        decode_(std::make_shared<onnx::Model>(std::move(m))),
        host_("host", decode_->opsets),
        cache_("cache", decode_->opsets) {}

  Result<std::vector<StageGraph>> Build() {
    Feed();
    for (const StaticGraphInput& input : m_.inputs) SLM_RETURN_IF_ERROR(Add(input));
    for (int layer = 0; layer < m_.n_layers; ++layer)
      for (const char* kind : {"key", "value"}) SLM_RETURN_IF_ERROR(AddCache(kind, layer));
    onnx::GenAiStage stage;
    stage.name = "decode", stage.file = m_.graphs.back().name;
    for (const onnx::ValueInfo& v : decode_->graph.inputs) stage.inputs.push_back(v.name);
    stage.outputs = entries_;
    stage.outputs.push_back(m_.logits);
    for (const std::string& entry : entries_) decode_->graph.outputs.push_back({entry, {}});
    std::vector<StageGraph> out;
    out.push_back(host_.Take());
    out.push_back({std::move(stage), std::move(decode_)});
    out.push_back(cache_.Take());
    return out;
  }

 private:
  void Feed() {
    host_.Input(names_.input_ids, ElementType::kInt64, {1, -1});
    host_.Input(names_.position_ids, ElementType::kInt64, {1, -1});
    host_.Input(names_.total, ElementType::kInt64, {});
    host_.One("zero", 0), host_.One("one", 1);
    host_.Whole("rows", {-1, 1}), host_.Whole("front", {0, 1}), host_.Whole("heads", {1});
    host_.Add("Range", {"zero", names_.total, "one"}, "keys");
    host_.Add("Reshape", {names_.position_ids, "rows"}, "queries");
    host_.Add("LessOrEqual", {"keys", "queries"}, "before");
    host_.Tensor<float>("allowed", ElementType::kFloat, {}, {0}), host_.Tensor<float>("hidden", ElementType::kFloat, {}, {kHidden});
  }

  const onnx::Tensor* Constant(const std::string& name) const {
    for (const onnx::Tensor& t : decode_->graph.initializers)
      if (t.name == name) return &t;
    return nullptr;
  }

  // Scale and zero point of a QuantizeLinear or DequantizeLinear of whole tensors.
  Result<Encoding> EncodingOf(const onnx::Node& n) const {
    const onnx::Tensor* scale = n.inputs.size() > 1 ? Constant(n.inputs[1]) : nullptr;
    const onnx::Tensor* zero = n.inputs.size() > 2 && !n.inputs[2].empty() ? Constant(n.inputs[2]) : nullptr;
    const bool has_zero = n.inputs.size() > 2 && !n.inputs[2].empty();
    if (!scale || scale->type != ElementType::kFloat || scale->n_values() != 1 ||
        (has_zero && (!zero || zero->n_values() != 1 || (zero->type != ElementType::kUint16 && zero->type != ElementType::kInt16))))
      return Error(Code::kUnsupported, "node " + Quoted(n.name) + ": one f32 scale and one 16-bit zero point are read",
                   "export the folder again");
    Encoding e;
    std::memcpy(&e.scale, scale->data.data(), sizeof e.scale);
    if (zero) e.zero = CodeAt(zero->data, 0, zero->type == ElementType::kInt16);
    return e;
  }
  static int32_t CodeAt(std::span<const std::byte> bytes, size_t i, bool is_signed) {
    uint16_t code = 0;
    std::memcpy(&code, bytes.data() + 2 * i, 2);
    return is_signed ? static_cast<int16_t>(code) : code;
  }

  // The input `name` gets numbers instead of their codes: what turned them back does nothing any more.
  Result<Encoding> Real(const std::string& name, StaticElement type) {
    const auto& inputs = decode_->graph.inputs;
    if (std::none_of(inputs.begin(), inputs.end(), [&](const onnx::ValueInfo& v) { return v.name == name; }))
      return Lacks("no input " + Quoted(name));
    Encoding e;
    if (type == StaticElement::kF32) return e;
    int n_readers = 0;
    for (onnx::Node& n : decode_->graph.nodes) {
      if (std::find(n.inputs.begin(), n.inputs.end(), name) == n.inputs.end()) continue;
      if (n.op_type != "DequantizeLinear" || n.inputs[0] != name || ++n_readers > 1)
        return Error(Code::kUnsupported, "input " + Quoted(name) + " is read otherwise than by one DequantizeLinear",
                     "export the folder again");
      SLM_ASSIGN_OR_RETURN(e, EncodingOf(n));
      n.op_type = "Identity";
      n.inputs = {name};
      n.attributes.clear();
    }
    return e;
  }

  Status Add(const StaticGraphInput& input) {
    SLM_ASSIGN_OR_RETURN(const Encoding e, Real(input.name, m_.input_type));
    host_.Output(input.name);
    if (input.rows == StaticGraphInput::Rows::kMask) return AddMask(input, e);
    const model::Tensor& from = f_.Table(input.table);
    std::vector<float> values(static_cast<size_t>(from.dims[0] * from.dims[1]));
    if (m_.input_type == StaticElement::kF32) std::memcpy(values.data(), from.data.data(), values.size() * sizeof(float));
    else
      for (size_t i = 0; i < values.size(); ++i) values[i] = e.Value(CodeAt(from.data, i, m_.input_type == StaticElement::kI16));
    const std::string table = host_.Tensor(input.name + ".table", ElementType::kFloat, from.dims, values);
    if (input.rows == StaticGraphInput::Rows::kToken) {
      host_.Add("Gather", {table, names_.input_ids}, input.name);
      return Ok();
    }
    host_.Add("Gather", {table, names_.position_ids}, input.name + ".rows");
    host_.Add("Unsqueeze", {input.name + ".rows", "heads"}, input.name);
    return Ok();
  }

  Status AddMask(const StaticGraphInput& input, const Encoding& e) {
    const bool codes = m_.input_type != StaticElement::kF32;
    const auto value = [&](double element) { return codes ? e.Value(static_cast<int32_t>(element)) : element; };
    if (value(input.allowed) != 0 || value(input.masked) > -kLeastHidden)
      return Error(Code::kUnsupported,
                   fmt::format("{}: a mask of {} and {}", Quoted(input.name), value(input.allowed), value(input.masked)),
                   "0 and a number far below are read");
    std::string seen = "before";
    if (input.window > 0) {
      host_.Add("Sub", {"queries", "keys"}, input.name + ".distance");
      host_.Add("Less", {input.name + ".distance", host_.One(input.name + ".window", input.window)}, input.name + ".near");
      seen = host_.Add("And", {"before", input.name + ".near"}, input.name + ".seen");
    }
    host_.Add("Where", {seen, "allowed", "hidden"}, input.name + ".rows");
    host_.Add("Unsqueeze", {input.name + ".rows", "front"}, input.name);
    return Ok();
  }

  // Keys lie as columns, values as rows.
  Status AddCache(const char* kind, int layer) {
    const std::string past = PastName(kind, layer), entry = EntryName(kind, layer);
    const bool is_key = kind[0] == 'k';
    const std::string all_past = CacheName(is_key ? names_.past_key : names_.past_value, layer);
    const std::string present = CacheName(is_key ? names_.present_key : names_.present_value, layer);
    SLM_RETURN_IF_ERROR(Real(past, m_.cache_type));
    const auto turned = [] { return std::vector{Number("perm", {0, 1, 3, 2}, onnx::Attribute::Kind::kInts)}; };
    for (Maker* to : {&host_, &cache_}) to->Input(all_past, ElementType::kFloat, {1, m_.n_kv_heads, -1, m_.head_dim});
    is_key ? host_.Add("Transpose", {all_past}, past, turned()) : host_.Add("Identity", {all_past}, past);
    host_.Output(past);
    SLM_ASSIGN_OR_RETURN(const std::string real, RealEntry(entry));
    cache_.Input(real, ElementType::kFloat, {1, m_.n_kv_heads, is_key ? m_.head_dim : 1, is_key ? 1 : m_.head_dim});
    const std::string rows = is_key ? cache_.Add("Transpose", {real}, entry + ".rows", turned()) : real;
    cache_.Add("Concat", {all_past, rows}, present, {Number("axis", {2}, onnx::Attribute::Kind::kInt)});
    cache_.Output(present);
    return Ok();
  }

  // What the graph gives as codes for the cache, turned back.
  Result<std::string> RealEntry(const std::string& entry) {
    std::vector<onnx::Node>& nodes = decode_->graph.nodes;
    const auto makes = [&](const onnx::Node& n) { return !n.outputs.empty() && n.outputs[0] == entry; };
    const auto made = std::find_if(nodes.begin(), nodes.end(), makes);
    if (made == nodes.end()) return Lacks("no output " + Quoted(entry));
    onnx::Node back;
    back.name = "entries of " + entry;
    back.outputs = {back.name};
    back.op_type = "Identity", back.inputs = {entry};
    if (m_.cache_type != StaticElement::kF32) {
      if (made->op_type != "QuantizeLinear" || made->inputs.size() < 2)
        return Lacks("output " + Quoted(entry) + " is made by no QuantizeLinear");
      back.op_type = "DequantizeLinear", back.inputs = made->inputs;
      back.inputs[0] = entry;
    }
    nodes.push_back(back);
    return entries_.emplace_back(back.name);
  }

  const onnx::StaticFolder& f_;
  const onnx::StaticManifest& m_;
  const onnx::GenAiNames names_;
  std::shared_ptr<onnx::Model> decode_;
  Maker host_, cache_;
  Names entries_;
};

}  // namespace

Result<std::vector<StageGraph>> StagesOf(const onnx::StaticFolder& f) {
  const onnx::StaticGraphFile& decode = f.manifest.graphs.back();
  if (decode.tokens != 1)
    return Error(Code::kUnsupported,
                 fmt::format("{}: {}: a graph for {} tokens; own kernels take one for one token", f.path, decode.name, decode.tokens),
                 "export it with --decode-tokens 1, or run it with ONNX Runtime: leave out --backend cpu");
  SLM_ASSIGN_OR_RETURN(onnx::Model m, onnx::ReadModel(f.path + "/" + decode.name));
  auto stages = Stages(f, std::move(m)).Build();
  if (!stages.ok()) return stages.error().At(f.path + ": " + decode.name);
  return stages;
}

}  // namespace slm::importer
