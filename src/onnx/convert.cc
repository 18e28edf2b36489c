// Messages of graphs, nodes, attributes, types and functions to the structures of onnx.h. Depth is bounded by protobuf's own limit
// of nested messages (100), so recursion here is bounded too.
#include "onnx/convert.h"

#include <fmt/format.h>

#include "model/quoted.h"

namespace slm::onnx {
namespace {

using model::Quoted;
using Kind = Attribute::Kind;

constexpr const char* kHint = "the file is damaged or was not made by ONNX: export or fetch it again";

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

Result<ElementType> Element(int32_t number) {
  if (!IsElementType(number)) return Corrupt(fmt::format("element type {} is not known", number));
  return static_cast<ElementType>(number);
}

std::vector<std::string> TakeStrings(::google::protobuf::RepeatedPtrField<std::string>& list) {
  std::vector<std::string> out;
  out.reserve(static_cast<size_t>(list.size()));
  for (std::string& s : list) out.push_back(std::move(s));
  return out;
}

// "ai.onnx" and "" are one domain.
std::string Domain(std::string domain) { return domain == "ai.onnx" ? std::string() : domain; }

std::vector<Dim> ConvertShape(const ::onnx::TensorShapeProto& proto) {
  std::vector<Dim> shape;
  for (const auto& d : proto.dim()) {
    Dim dim;
    if (d.has_dim_value() && d.dim_value() >= 0) dim.value = d.dim_value();
    if (d.has_dim_param()) dim.symbol = d.dim_param();
    shape.push_back(std::move(dim));
  }
  return shape;
}

template <class Proto>
Result<ValueType> ShapedType(const Proto& proto, ValueType::Kind kind) {
  ValueType t;
  t.kind = kind;
  SLM_ASSIGN_OR_RETURN(t.element, Element(proto.elem_type()));
  t.has_shape = proto.has_shape();
  if (t.has_shape) t.shape = ConvertShape(proto.shape());
  return t;
}

Result<ValueType> Wrapped(::onnx::TypeProto& inner, ValueType::Kind kind) {
  ValueType t;
  t.kind = kind;
  SLM_ASSIGN_OR_RETURN(ValueType element, ConvertType(inner));
  t.inner.push_back(std::move(element));
  return t;
}

Result<std::vector<ValueInfo>> ConvertInfos(::google::protobuf::RepeatedPtrField<::onnx::ValueInfoProto>& list) {
  std::vector<ValueInfo> out;
  for (auto& v : list) {
    auto type = ConvertType(*v.mutable_type());
    if (!type.ok()) return type.error().At("value " + Quoted(v.name()));
    out.push_back({std::move(*v.mutable_name()), type.Take()});
  }
  return out;
}

Result<Attribute> ConvertAttribute(::onnx::AttributeProto& proto, Conversion c);

Result<std::vector<Attribute>> ConvertAttributes(::google::protobuf::RepeatedPtrField<::onnx::AttributeProto>& list, Conversion c) {
  std::vector<Attribute> out;
  for (auto& a : list) {
    auto converted = ConvertAttribute(a, c);
    if (!converted.ok()) return converted.error().At("attribute " + Quoted(a.name()));
    converted.value().name = std::move(*a.mutable_name());
    for (const Attribute& other : out)
      if (other.name == converted.value().name) return Corrupt("attribute " + Quoted(other.name) + " stands twice");
    out.push_back(converted.Take());
  }
  return out;
}

// The kind that the fields themselves show, for files of IR version 1 that say none.
Kind KindOfFields(const ::onnx::AttributeProto& p) {
  if (p.has_f()) return Kind::kFloat;
  if (p.has_i()) return Kind::kInt;
  if (p.has_s()) return Kind::kString;
  if (p.has_t()) return Kind::kTensor;
  if (p.has_g()) return Kind::kGraph;
  if (p.floats_size() > 0) return Kind::kFloats;
  if (p.ints_size() > 0) return Kind::kInts;
  if (p.strings_size() > 0) return Kind::kStrings;
  return Kind::kNone;
}

Result<Attribute> ConvertAttribute(::onnx::AttributeProto& proto, Conversion c) {
  Attribute a;
  a.kind = proto.has_type() ? static_cast<Kind>(proto.type()) : KindOfFields(proto);
  a.ref = std::move(*proto.mutable_ref_attr_name());
  if (!a.ref.empty()) return a;
  const auto add = [](auto& list, auto converted) -> Status {
    if (!converted.ok()) return converted.error();
    list.push_back(converted.Take());
    return Ok();
  };
  switch (a.kind) {
    case Kind::kNone: return Corrupt("no value");
    case Kind::kFloat: a.floats = {proto.f()}; break;
    case Kind::kInt: a.ints = {proto.i()}; break;
    case Kind::kString: a.strings.push_back(std::move(*proto.mutable_s())); break;
    case Kind::kFloats: a.floats.assign(proto.floats().begin(), proto.floats().end()); break;
    case Kind::kInts: a.ints.assign(proto.ints().begin(), proto.ints().end()); break;
    case Kind::kStrings: a.strings = TakeStrings(*proto.mutable_strings()); break;
    case Kind::kTensor:
      if (!proto.has_t()) return Corrupt("no tensor");
      SLM_RETURN_IF_ERROR(add(a.tensors, ConvertTensor(*proto.mutable_t(), c)));
      break;
    case Kind::kTensors:
      for (auto& t : *proto.mutable_tensors()) SLM_RETURN_IF_ERROR(add(a.tensors, ConvertTensor(t, c)));
      break;
    case Kind::kGraph:
      if (!proto.has_g()) return Corrupt("no graph");
      SLM_RETURN_IF_ERROR(add(a.graphs, ConvertGraph(*proto.mutable_g(), c)));
      break;
    case Kind::kGraphs:
      for (auto& g : *proto.mutable_graphs()) SLM_RETURN_IF_ERROR(add(a.graphs, ConvertGraph(g, c)));
      break;
    case Kind::kSparseTensor: SLM_RETURN_IF_ERROR(add(a.sparse_tensors, ConvertSparseTensor(*proto.mutable_sparse_tensor(), c))); break;
    case Kind::kSparseTensors:
      for (auto& s : *proto.mutable_sparse_tensors()) SLM_RETURN_IF_ERROR(add(a.sparse_tensors, ConvertSparseTensor(s, c)));
      break;
    case Kind::kType: SLM_RETURN_IF_ERROR(add(a.types, ConvertType(*proto.mutable_tp()))); break;
    case Kind::kTypes:
      for (auto& t : *proto.mutable_type_protos()) SLM_RETURN_IF_ERROR(add(a.types, ConvertType(t)));
      break;
  }
  return a;
}

Result<std::vector<Node>> ConvertNodes(::google::protobuf::RepeatedPtrField<::onnx::NodeProto>& list, Conversion c) {
  std::vector<Node> out;
  out.reserve(static_cast<size_t>(list.size()));
  for (auto& n : list) {
    const std::string place = fmt::format("node {} {} ({})", out.size(), Quoted(n.name()), Quoted(n.op_type()));
    if (n.op_type().empty()) return Corrupt("no operator").At(place);
    auto attributes = ConvertAttributes(*n.mutable_attribute(), c);
    if (!attributes.ok()) return attributes.error().At(place);
    out.push_back({std::move(*n.mutable_name()), std::move(*n.mutable_op_type()), Domain(n.domain()), std::move(*n.mutable_overload()),
                   TakeStrings(*n.mutable_input()), TakeStrings(*n.mutable_output()), attributes.Take()});
  }
  return out;
}

}  // namespace

Result<ValueType> ConvertType(::onnx::TypeProto& proto) {
  using Type = ::onnx::TypeProto;
  using ValueKind = ValueType::Kind;
  switch (proto.value_case()) {
    case Type::kTensorType: return ShapedType(proto.tensor_type(), ValueKind::kTensor);
    case Type::kSparseTensorType: return ShapedType(proto.sparse_tensor_type(), ValueKind::kSparseTensor);
    case Type::kSequenceType: return Wrapped(*proto.mutable_sequence_type()->mutable_elem_type(), ValueKind::kSequence);
    case Type::kOptionalType: return Wrapped(*proto.mutable_optional_type()->mutable_elem_type(), ValueKind::kOptional);
    case Type::kMapType: {
      SLM_ASSIGN_OR_RETURN(ValueType t, Wrapped(*proto.mutable_map_type()->mutable_value_type(), ValueKind::kMap));
      SLM_ASSIGN_OR_RETURN(t.element, Element(proto.map_type().key_type()));
      return t;
    }
    case Type::kOpaqueType: return ValueType{.kind = ValueKind::kOpaque};
    case Type::VALUE_NOT_SET: return ValueType{};
  }
  return ValueType{};
}

std::vector<Opset> ConvertOpsets(::google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto>& list) {
  std::vector<Opset> out;
  for (auto& o : list) out.push_back({Domain(o.domain()), o.version()});
  return out;
}

Result<Graph> ConvertGraph(::onnx::GraphProto& proto, Conversion c) {
  Graph g;
  g.name = std::move(*proto.mutable_name());
  for (auto& t : *proto.mutable_initializer()) {
    SLM_ASSIGN_OR_RETURN(Tensor tensor, ConvertTensor(t, c));
    g.initializers.push_back(std::move(tensor));
  }
  for (auto& s : *proto.mutable_sparse_initializer()) {
    SLM_ASSIGN_OR_RETURN(SparseTensor sparse, ConvertSparseTensor(s, c));
    g.sparse_initializers.push_back(std::move(sparse));
  }
  SLM_ASSIGN_OR_RETURN(g.inputs, ConvertInfos(*proto.mutable_input()));
  SLM_ASSIGN_OR_RETURN(g.outputs, ConvertInfos(*proto.mutable_output()));
  SLM_ASSIGN_OR_RETURN(g.value_infos, ConvertInfos(*proto.mutable_value_info()));
  SLM_ASSIGN_OR_RETURN(g.nodes, ConvertNodes(*proto.mutable_node(), c));
  return g;
}

Result<Function> ConvertFunction(::onnx::FunctionProto& proto, Conversion c) {
  Function f;
  f.domain = Domain(proto.domain());
  f.name = std::move(*proto.mutable_name());
  f.overload = std::move(*proto.mutable_overload());
  const std::string place = "function " + Quoted(f.name);
  f.inputs = TakeStrings(*proto.mutable_input());
  f.outputs = TakeStrings(*proto.mutable_output());
  f.attribute_names = TakeStrings(*proto.mutable_attribute());
  f.opsets = ConvertOpsets(*proto.mutable_opset_import());
  auto attributes = ConvertAttributes(*proto.mutable_attribute_proto(), c);
  if (!attributes.ok()) return attributes.error().At(place);
  f.attributes = attributes.Take();
  auto nodes = ConvertNodes(*proto.mutable_node(), c);
  if (!nodes.ok()) return nodes.error().At(place);
  f.nodes = nodes.Take();
  auto infos = ConvertInfos(*proto.mutable_value_info());
  if (!infos.ok()) return infos.error().At(place);
  f.value_infos = infos.Take();
  return f;
}

}  // namespace slm::onnx
