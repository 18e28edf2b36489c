// See piece.h.
#include "legalize/piece.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/float16.h"

namespace slm::legalize {
namespace {

using reference::Array;

template <class From, class As>
std::vector<std::byte> Stored(const std::vector<From>& values, As as) {
  using T = decltype(as(values[0]));
  std::vector<std::byte> out(values.size() * sizeof(T));
  for (size_t k = 0; k < values.size(); ++k) {
    const T value = as(values[k]);
    std::memcpy(out.data() + k * sizeof(T), &value, sizeof(T));
  }
  return out;
}

std::optional<std::vector<std::byte>> StoredValues(const Array& a) {
  switch (a.type) {
    case ElementType::kFloat: return Stored(a.f, [](double x) { return static_cast<float>(x); });
    case ElementType::kDouble: return Stored(a.f, [](double x) { return x; });
    case ElementType::kFloat16: return Stored(a.f, [](double x) { return FloatToHalf(static_cast<float>(x)); });
    case ElementType::kBfloat16: return Stored(a.f, [](double x) { return FloatToBFloat16(static_cast<float>(x)); });
    case ElementType::kInt64:
    case ElementType::kUint64: return Stored(a.i, [](int64_t x) { return x; });
    case ElementType::kInt32:
    case ElementType::kUint32: return Stored(a.i, [](int64_t x) { return static_cast<int32_t>(x); });
    case ElementType::kInt16:
    case ElementType::kUint16: return Stored(a.i, [](int64_t x) { return static_cast<int16_t>(x); });
    case ElementType::kInt8:
    case ElementType::kUint8:
    case ElementType::kBool: return Stored(a.i, [](int64_t x) { return static_cast<int8_t>(x); });
    default: return std::nullopt;
  }
}

OwnedTensor Own(const std::string& name, ElementType type, Dims dims, std::vector<std::byte> bytes) {
  OwnedTensor out;
  out.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  out.tensor.name = name;
  out.tensor.type = type;
  out.tensor.dims = std::move(dims);
  out.tensor.data = *out.bytes;
  return out;
}

onnx::Attribute Named(const char* name, onnx::Attribute::Kind kind) {
  onnx::Attribute a;
  a.name = name;
  a.kind = kind;
  return a;
}

}  // namespace

std::optional<OwnedTensor> Encode(const std::string& name, const Array& array) {
  auto bytes = StoredValues(array);
  if (!bytes) return std::nullopt;
  return Own(name, array.type, array.dims, std::move(*bytes));
}

bool Site::Wanted(size_t output) const {
  const targets::Value* v = flat.Output(flat_node, output);
  return v && (v->graph_output || !v->consumers.empty());
}

ElementType Site::Type(size_t input) const {
  const targets::Value* v = In(input);
  return v ? v->type : ElementType::kUndefined;
}

std::optional<Dims> Site::Shape(size_t input) const {
  const targets::Value* v = In(input);
  if (!v || !v->IsStatic() || v->n_values() < 0) return std::nullopt;
  return v->Dims();
}

std::optional<int64_t> Site::Rank(size_t input) const {
  const targets::Value* v = In(input);
  if (!v || !v->has_shape) return std::nullopt;
  return static_cast<int64_t>(v->shape.size());
}

bool Site::Ints(size_t input, Dims& out) const { return targets::FixedInts(flat, flat.nodes[static_cast<size_t>(flat_node)], input, out); }

const std::shared_ptr<const std::vector<std::byte>>& Zeros::Of(size_t n) {
  // Twice the room each time: all that was ever made is no more than twice the largest.
  if (!bytes_ || bytes_->size() < n) bytes_ = std::make_shared<const std::vector<std::byte>>(std::max(n, bytes_ ? 2 * bytes_->size() : 0));
  return bytes_;
}

std::optional<double> FixedNumber(const targets::Flat& flat, const std::string& value) {
  const targets::Value* v = flat.Find(value);
  if (!v || !v->fixed) return std::nullopt;
  const auto one = [](const Array& a) -> std::optional<double> {
    if (a.size() != 1 || (a.f.empty() && a.i.empty())) return std::nullopt;
    return a.f.empty() ? static_cast<double>(a.i[0]) : a.f[0];
  };
  if (v->data) return one(*v->data);
  if (!v->tensor || v->tensor->n_values() != 1) return std::nullopt;
  const auto array = reference::FromTensor(*v->tensor);
  return array.ok() ? one(array.value()) : std::nullopt;
}

double Site::Float(const char* attribute, double otherwise) const {
  const onnx::Attribute* a = node().Find(attribute);
  return a && a->floats.size() == 1 ? a->floats[0] : otherwise;
}

std::string Site::Text(const char* attribute, const char* otherwise) const {
  const onnx::Attribute* a = node().Find(attribute);
  return a && a->strings.size() == 1 ? a->strings[0] : otherwise;
}

int Site::Maker(const std::string& value) const {
  if (value.empty()) return -1;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const std::string& out : graph.nodes[i].outputs)
      if (out == value) return static_cast<int>(i);
  return -1;
}

int Site::OnlyReader(const std::string& value) const {
  const targets::Value* v = flat.Find(value);
  if (!v || v->graph_output || v->consumers.size() != 1) return -1;
  const targets::FlatNode& reader = flat.nodes[static_cast<size_t>(v->consumers[0])];
  if (reader.owner >= 0 || reader.node.outputs.empty()) return -1;
  const int maker = Maker(reader.node.outputs[0]);
  return maker >= 0 && graph.nodes[static_cast<size_t>(maker)].op_type == reader.node.op_type ? maker : -1;
}

std::optional<int64_t> FromFront(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) return std::nullopt;
  return axis < 0 ? axis + rank : axis;
}

onnx::Attribute IntAttribute(const char* name, int64_t value) {
  onnx::Attribute a = Named(name, onnx::Attribute::Kind::kInt);
  a.ints = {value};
  return a;
}
onnx::Attribute IntsAttribute(const char* name, Dims values) {
  onnx::Attribute a = Named(name, onnx::Attribute::Kind::kInts);
  a.ints = std::move(values);
  return a;
}
onnx::Attribute FloatAttribute(const char* name, double value) {
  onnx::Attribute a = Named(name, onnx::Attribute::Kind::kFloat);
  a.floats = {static_cast<float>(value)};
  return a;
}
onnx::Attribute TextAttribute(const char* name, const char* value) {
  onnx::Attribute a = Named(name, onnx::Attribute::Kind::kString);
  a.strings = {value};
  return a;
}

Builder::Builder(const Site& site) : site_(site) {
  for (const std::string& out : site.node().outputs)
    if (prefix_.empty()) prefix_ = out;
}

// No value of the graph has it.
std::string Builder::Fresh() {
  for (;;) {
    std::string name = prefix_ + "/" + std::to_string(made_++);
    if (!site_.flat.values.contains(name)) return name;
  }
}

std::string Builder::Op(const char* op, Names inputs, std::vector<onnx::Attribute> attributes) {
  std::string name = Fresh();
  ToName(name, op, std::move(inputs), std::move(attributes));
  return name;
}

void Builder::To(size_t output, const char* op, Names inputs, std::vector<onnx::Attribute> attributes) {
  ToName(site_.node().outputs[output], op, std::move(inputs), std::move(attributes));
}

void Builder::ToName(const std::string& name, const char* op, Names inputs, std::vector<onnx::Attribute> attributes) {
  onnx::Node n;
  n.op_type = op;
  n.name = name;
  n.inputs = std::move(inputs);
  n.outputs = {name};
  n.attributes = std::move(attributes);
  piece_.nodes.push_back(std::move(n));
}

std::string Builder::CallLast(const std::string& name) {
  onnx::Node& n = piece_.nodes.back();
  return n.outputs[0] = n.name = name;
}

std::string Builder::Constant(Array array) {
  std::string name = Fresh();
  auto tensor = Encode(name, array);
  SLM_ASSERT(tensor.has_value());  // rewrites make constants of types that Encode knows
  piece_.tensors.push_back(std::move(*tensor));
  return name;
}

std::string Builder::Stored(ElementType type, Dims dims, std::vector<std::byte> bytes) {
  std::string name = Fresh();
  piece_.tensors.push_back(Own(name, type, std::move(dims), std::move(bytes)));
  return name;
}

std::string Builder::Zero(ElementType type, Dims dims) {
  OwnedTensor t = Own(Fresh(), type, std::move(dims), {});
  const auto n = static_cast<size_t>(onnx::StoredBytes(type, t.tensor.n_values()));
  t.bytes = site_.zeros.Of(n);
  t.tensor.data = std::span(*t.bytes).first(n);
  piece_.tensors.push_back(std::move(t));
  return piece_.tensors.back().tensor.name;
}

std::string Builder::Ints(Dims values) {
  Array a{.type = ElementType::kInt64, .dims = {static_cast<int64_t>(values.size())}, .f = {}, .i = std::move(values), .s = {}};
  return Constant(std::move(a));
}
std::string Builder::Int32s(Dims values, Dims dims) {
  return Constant({.type = ElementType::kInt32, .dims = std::move(dims), .f = {}, .i = std::move(values), .s = {}});
}
std::string Builder::Bools(Dims values, Dims dims) {
  return Constant({.type = ElementType::kBool, .dims = std::move(dims), .f = {}, .i = std::move(values), .s = {}});
}
std::string Builder::Number(ElementType type, double x) { return Constant({.type = type, .dims = {}, .f = {x}, .i = {}, .s = {}}); }

std::string Builder::Cast(const std::string& x, ElementType to) { return Op("Cast", {x}, {IntAttribute("to", static_cast<int64_t>(to))}); }
std::string Builder::Reshape(const std::string& x, Dims dims) { return Op("Reshape", {x, Ints(std::move(dims))}); }
std::string Builder::Transpose(const std::string& x, Dims perm) { return Op("Transpose", {x}, {IntsAttribute("perm", std::move(perm))}); }
std::string Builder::Slice(const std::string& x, int64_t axis, int64_t from, int64_t to) {
  std::string first = Ints({from}), last = Ints({to}), along = Ints({axis});
  return Op("Slice", {x, std::move(first), std::move(last), std::move(along)});
}
std::string Builder::Concat(Names parts, int64_t axis) { return Op("Concat", std::move(parts), {IntAttribute("axis", axis)}); }
std::string Builder::Mean(const std::string& x, Dims axes) {
  if (site_.opset >= 18) return Op("ReduceMean", {x, Ints(std::move(axes))}, {IntAttribute("keepdims", 1)});
  return Op("ReduceMean", {x}, {IntsAttribute("axes", std::move(axes)), IntAttribute("keepdims", 1)});
}

Piece Builder::Take(std::vector<size_t> more) {
  piece_.takes = std::move(more);
  piece_.takes.push_back(site_.at);
  std::sort(piece_.takes.begin(), piece_.takes.end());
  return std::move(piece_);
}

}  // namespace slm::legalize
