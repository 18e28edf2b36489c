// What a node's outputs are: element types by operator, fixed content by running the reference on fixed inputs.
#include <algorithm>
#include <map>

#include "targets/flat.h"

namespace slm::targets {
namespace {

using onnx::ElementType;

constexpr int64_t kSmall = 4096;  // values of fixed content that is worth computing: shapes, indices, not weights

// Where the type of output 0 comes from when it is not input 0's; the other outputs follow kOthers or output 0.
constexpr int kFromAttribute = -1;
struct TypeRule {
  int input = 0;
  ElementType type = ElementType::kUndefined;  // fixed, when defined
};
const std::map<std::string_view, TypeRule>& TypeRules() {
  static const std::map<std::string_view, TypeRule> rules = {
      {"Cast", {kFromAttribute}},
      {"CastLike", {1}},
      {"Shape", {0, ElementType::kInt64}},
      {"Size", {0, ElementType::kInt64}},
      {"ArgMax", {0, ElementType::kInt64}},
      {"ArgMin", {0, ElementType::kInt64}},
      {"NonZero", {0, ElementType::kInt64}},
      {"Equal", {0, ElementType::kBool}},
      {"Greater", {0, ElementType::kBool}},
      {"GreaterOrEqual", {0, ElementType::kBool}},
      {"Less", {0, ElementType::kBool}},
      {"LessOrEqual", {0, ElementType::kBool}},
      {"And", {0, ElementType::kBool}},
      {"Or", {0, ElementType::kBool}},
      {"Xor", {0, ElementType::kBool}},
      {"Not", {0, ElementType::kBool}},
      {"IsNaN", {0, ElementType::kBool}},
      {"IsInf", {0, ElementType::kBool}},
      {"Where", {1}},
      {"DequantizeLinear", {1}},
      {"QuantizeLinear", {2}},
      {"MatMulInteger", {0, ElementType::kInt32}},
      {"ConvInteger", {0, ElementType::kInt32}},
      {"DynamicQuantizeLinear", {0, ElementType::kUint8}},
      {"QLinearMatMul", {7}},
      {"QLinearConv", {7}},
      {"OneHot", {2}},
      {"GatherBlockQuantized", {2}},
      {"ConstantOfShape", {kFromAttribute}},
      {"Constant", {kFromAttribute}},
      {"EyeLike", {kFromAttribute}},
      {"RandomNormal", {kFromAttribute}},
      {"RandomUniform", {kFromAttribute}},
  };
  return rules;
}

ElementType FromAttribute(const onnx::Node& n) {
  if (n.op_type == "ConstantOfShape" || n.op_type == "Constant") {
    const onnx::Attribute* value = n.Find("value");
    if (value && !value->tensors.empty()) return value->tensors[0].type;
    for (const auto& [name, type] : {std::pair{"value_int", ElementType::kInt64}, std::pair{"value_ints", ElementType::kInt64}})
      if (n.Find(name)) return type;
    return ElementType::kFloat;
  }
  const int64_t to = n.Int(n.op_type == "Cast" ? "to" : "dtype", n.op_type == "Cast" ? 0 : 1);
  return onnx::IsElementType(to) ? static_cast<ElementType>(to) : ElementType::kUndefined;
}

ElementType TypeOf(const Flat& flat, const onnx::Node& n, size_t output) {
  const auto input = [&](size_t i) {
    const Value* v = i < n.inputs.size() ? flat.Find(n.inputs[i]) : nullptr;
    return v ? v->type : ElementType::kUndefined;
  };
  if (n.op_type == "QuantizeLinear" || n.op_type == "DequantizeLinear")
    if (const int64_t t = n.Int("output_dtype", 0); onnx::IsElementType(t)) return static_cast<ElementType>(t);
  if (n.op_type == "QuantizeLinear" && (n.inputs.size() < 3 || n.inputs[2].empty())) return ElementType::kUint8;
  if (n.op_type == "TopK" && output == 1) return ElementType::kInt64;
  if (n.op_type == "DynamicQuantizeLinear" && output == 1) return ElementType::kFloat;
  if (n.op_type == "GroupQueryAttention" && output > 0) return input(2 + output) != ElementType::kUndefined ? input(2 + output) : input(0);
  if ((n.op_type == "LayerNormalization" || n.op_type == "SkipLayerNormalization" || n.op_type == "SkipSimplifiedLayerNormalization") &&
      (output == 1 || output == 2))
    return ElementType::kFloat;
  if (n.op_type == "If" || n.op_type == "Loop" || n.op_type == "Scan") return ElementType::kUndefined;
  const auto rule = TypeRules().find(n.op_type);
  if (rule == TypeRules().end()) return input(0);
  if (rule->second.type != ElementType::kUndefined) return rule->second.type;
  return rule->second.input == kFromAttribute ? FromAttribute(n) : input(static_cast<size_t>(rule->second.input));
}

// The content of a fixed value, when it is small.
std::shared_ptr<const reference::Array> Content(const Value& v) {
  if (v.data) return v.data;
  if (!v.tensor || v.tensor->n_values() > kSmall) return nullptr;
  auto array = reference::FromTensor(*v.tensor);
  return array.ok() ? std::make_shared<const reference::Array>(array.Take()) : nullptr;
}

// Runs one node on fixed inputs, if the reference can.
void Compute(Flat& flat, int index) {
  const FlatNode& n = flat.nodes[static_cast<size_t>(index)];
  std::vector<std::shared_ptr<const reference::Array>> held;
  std::vector<const reference::Array*> inputs;
  for (size_t i = 0; i < n.node.inputs.size(); ++i) {
    const Value* v = flat.Input(index, i);
    held.push_back(v ? Content(*v) : nullptr);
    if (v && !held.back()) return;
    inputs.push_back(held.back().get());
  }
  const onnx::Opset opset{n.node.domain, n.opset};
  auto result = reference::RunNode(n.node, {&opset, 1}, inputs);
  if (!result.ok()) return;
  for (size_t i = 0; i < n.node.outputs.size(); ++i) {
    if (n.node.outputs[i].empty()) continue;
    reference::Array& array = result.value()[i];
    Value& v = flat.values[n.node.outputs[i]];
    v.type = array.type;
    v.has_shape = true;
    v.shape.clear();
    for (const int64_t d : array.dims) v.shape.push_back(Sane({d, ""}));
    if (array.size() <= kSmall) v.data = std::make_shared<const reference::Array>(std::move(array));
  }
}

// The shape of a value whose shape is known is itself fixed.
void ShapeContent(Flat& flat, const FlatNode& n, int index) {
  const Value* in = flat.Input(index, 0);
  if (!in || !in->has_shape || n.node.outputs.empty()) return;
  reference::Array content = reference::ShapeContent(n.node, in->Dims());
  if (std::any_of(content.i.begin(), content.i.end(), [](int64_t d) { return d < 0; })) return;
  Value& out = flat.values[n.node.outputs[0]];
  out.fixed = true;
  out.data = std::make_shared<const reference::Array>(std::move(content));
}

bool IsQuantizer(const onnx::Node& n) { return n.op_type == "DequantizeLinear" || n.op_type == "QuantizeLinear"; }

}  // namespace

bool IsRepeatable(const onnx::Node& n) {
  const bool trains = n.op_type == "Dropout" && n.inputs.size() > 2 && !n.inputs[2].empty();
  return !trains && !n.op_type.starts_with("Random") && n.op_type != "Bernoulli" && n.op_type != "Multinomial" && n.op_type != "EPContext";
}

bool FixedInts(const Flat& flat, const FlatNode& n, size_t input, std::vector<int64_t>& out) {
  const Value* v = input < n.node.inputs.size() ? flat.Find(n.node.inputs[input]) : nullptr;
  if (!v) return false;
  const auto content = Content(*v);
  if (!content || content->i.empty() != (content->size() == 0)) return false;
  out = content->i;
  return true;
}

void InferNode(Flat& flat, int index) {
  const FlatNode& n = flat.nodes[static_cast<size_t>(index)];
  for (size_t i = 0; i < n.node.outputs.size(); ++i) {
    if (n.node.outputs[i].empty()) continue;
    Value& out = flat.values[n.node.outputs[i]];
    if (const ElementType t = TypeOf(flat, n.node, i); t != ElementType::kUndefined) out.type = t;
  }
  std::vector<std::vector<onnx::Dim>> shapes;
  if (InferShapes(flat, n, shapes))
    for (size_t i = 0; i < n.node.outputs.size() && i < shapes.size(); ++i) {
      if (n.node.outputs[i].empty()) continue;
      Value& out = flat.values[n.node.outputs[i]];
      if (!out.has_shape || !IsStatic(out.shape)) out.shape = shapes[i], out.has_shape = true;
    }
  if (n.node.op_type == "Shape" || n.node.op_type == "Size") return ShapeContent(flat, n, index);
  bool fixed = IsRepeatable(n.node);
  bool any = n.node.op_type == "Constant";
  for (size_t i = 0; i < n.node.inputs.size(); ++i)
    if (const Value* v = flat.Input(index, i)) fixed &= v->fixed, any = true;
  if (!fixed || !any) return;
  bool small = !IsQuantizer(n.node);
  for (const std::string& name : n.node.outputs) {
    if (name.empty()) continue;
    Value& out = flat.values[name];
    out.fixed = true;
    small &= out.n_values() >= 0 && out.n_values() <= kSmall;
  }
  if (small) Compute(flat, index);
}

}  // namespace slm::targets
