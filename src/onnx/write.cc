// WriteModel: the structures of onnx.h back to protobuf's messages. See onnx.h; what reading drops is not written either.
#include <fmt/format.h>

#include <climits>
#include <map>

#include "model/quoted.h"
#include "onnx/external.h"
#include "onnx/onnx.h"
#include "onnx/storage.h"

namespace slm::onnx {
namespace {

using Kind = Attribute::Kind;

constexpr uint64_t kPage = 4096, kLargePage = 65536, kLarge = uint64_t{1} << 20;

uint64_t Aligned(uint64_t offset, uint64_t bytes) {
  const uint64_t unit = bytes > kLarge ? kLargePage : kPage;
  return (offset + unit - 1) / unit * unit;
}

void FillTensor(const Tensor& t, ::onnx::TensorProto& out) {
  if (!t.name.empty()) out.set_name(t.name);
  out.set_data_type(static_cast<int>(t.type));
  for (const int64_t d : t.dims) out.add_dims(d);
  for (const std::string& s : t.strings) out.add_string_data(s);
  if (t.type != ElementType::kString) out.set_raw_data(t.data.data(), t.data.size());
}

void FillSparse(const SparseTensor& s, ::onnx::SparseTensorProto& out) {
  FillTensor(s.values, *out.mutable_values());
  FillTensor(s.indices, *out.mutable_indices());
  for (const int64_t d : s.dims) out.add_dims(d);
}

template <class Proto>
void FillShaped(const ValueType& t, Proto& out) {
  out.set_elem_type(static_cast<int>(t.element));
  if (!t.has_shape) return;
  auto& shape = *out.mutable_shape();
  for (const Dim& d : t.shape) {
    auto& dim = *shape.add_dim();
    if (d.value >= 0) dim.set_dim_value(d.value);
    else if (!d.symbol.empty()) dim.set_dim_param(d.symbol);
  }
}

void FillType(const ValueType& t, ::onnx::TypeProto& out) {
  switch (t.kind) {
    case ValueType::Kind::kNone: break;
    case ValueType::Kind::kTensor: FillShaped(t, *out.mutable_tensor_type()); break;
    case ValueType::Kind::kSparseTensor: FillShaped(t, *out.mutable_sparse_tensor_type()); break;
    case ValueType::Kind::kSequence: FillType(t.inner[0], *out.mutable_sequence_type()->mutable_elem_type()); break;
    case ValueType::Kind::kOptional: FillType(t.inner[0], *out.mutable_optional_type()->mutable_elem_type()); break;
    case ValueType::Kind::kMap:
      out.mutable_map_type()->set_key_type(static_cast<int>(t.element));
      FillType(t.inner[0], *out.mutable_map_type()->mutable_value_type());
      break;
    case ValueType::Kind::kOpaque: out.mutable_opaque_type(); break;
  }
}

void FillInfo(const ValueInfo& v, ::onnx::ValueInfoProto& out) {
  out.set_name(v.name);
  if (v.type.kind != ValueType::Kind::kNone) FillType(v.type, *out.mutable_type());
}

void FillGraph(const Graph& g, ::onnx::GraphProto& out);

void FillAttribute(const Attribute& a, ::onnx::AttributeProto& out) {
  out.set_name(a.name);
  out.set_type(static_cast<::onnx::AttributeProto::AttributeType>(a.kind));
  if (!a.ref.empty()) {
    out.set_ref_attr_name(a.ref);
    return;
  }
  switch (a.kind) {
    case Kind::kNone: break;
    case Kind::kFloat: out.set_f(a.floats[0]); break;
    case Kind::kInt: out.set_i(a.ints[0]); break;
    case Kind::kString: out.set_s(a.strings[0]); break;
    case Kind::kTensor: FillTensor(a.tensors[0], *out.mutable_t()); break;
    case Kind::kGraph: FillGraph(a.graphs[0], *out.mutable_g()); break;
    case Kind::kSparseTensor: FillSparse(a.sparse_tensors[0], *out.mutable_sparse_tensor()); break;
    case Kind::kType: FillType(a.types[0], *out.mutable_tp()); break;
    case Kind::kFloats: out.mutable_floats()->Assign(a.floats.begin(), a.floats.end()); break;
    case Kind::kInts: out.mutable_ints()->Assign(a.ints.begin(), a.ints.end()); break;
    case Kind::kStrings: out.mutable_strings()->Assign(a.strings.begin(), a.strings.end()); break;
    case Kind::kTensors:
      for (const Tensor& t : a.tensors) FillTensor(t, *out.add_tensors());
      break;
    case Kind::kGraphs:
      for (const Graph& g : a.graphs) FillGraph(g, *out.add_graphs());
      break;
    case Kind::kSparseTensors:
      for (const SparseTensor& s : a.sparse_tensors) FillSparse(s, *out.add_sparse_tensors());
      break;
    case Kind::kTypes:
      for (const ValueType& t : a.types) FillType(t, *out.add_type_protos());
      break;
  }
}

void FillNode(const Node& n, ::onnx::NodeProto& out) {
  for (const std::string& name : n.inputs) out.add_input(name);
  for (const std::string& name : n.outputs) out.add_output(name);
  if (!n.name.empty()) out.set_name(n.name);
  out.set_op_type(n.op_type);
  if (!n.domain.empty()) out.set_domain(n.domain);
  if (!n.overload.empty()) out.set_overload(n.overload);
  for (const Attribute& a : n.attributes) FillAttribute(a, *out.add_attribute());
}

// All but the dense initializers.
void FillBody(const Graph& g, ::onnx::GraphProto& out) {
  out.set_name(g.name);
  for (const Node& n : g.nodes) FillNode(n, *out.add_node());
  for (const SparseTensor& s : g.sparse_initializers) FillSparse(s, *out.add_sparse_initializer());
  for (const ValueInfo& v : g.inputs) FillInfo(v, *out.add_input());
  for (const ValueInfo& v : g.outputs) FillInfo(v, *out.add_output());
  for (const ValueInfo& v : g.value_infos) FillInfo(v, *out.add_value_info());
}

void FillGraph(const Graph& g, ::onnx::GraphProto& out) {
  FillBody(g, out);
  for (const Tensor& t : g.initializers) FillTensor(t, *out.add_initializer());
}

void FillOpset(const Opset& o, ::onnx::OperatorSetIdProto& out) {
  out.set_domain(o.domain);
  out.set_version(o.version);
}

void FillFunction(const Function& f, ::onnx::FunctionProto& out) {
  out.set_name(f.name);
  out.set_domain(f.domain);
  if (!f.overload.empty()) out.set_overload(f.overload);
  for (const std::string& name : f.inputs) out.add_input(name);
  for (const std::string& name : f.outputs) out.add_output(name);
  for (const std::string& name : f.attribute_names) out.add_attribute(name);
  for (const Attribute& a : f.attributes) FillAttribute(a, *out.add_attribute_proto());
  for (const Node& n : f.nodes) FillNode(n, *out.add_node());
  for (const Opset& o : f.opsets) FillOpset(o, *out.add_opset_import());
  for (const ValueInfo& v : f.value_infos) FillInfo(v, *out.add_value_info());
}

void FillModel(const Model& m, ::onnx::ModelProto& out) {
  out.set_ir_version(m.ir_version);
  for (const Opset& o : m.opsets) FillOpset(o, *out.add_opset_import());
  if (!m.producer_name.empty()) out.set_producer_name(m.producer_name);
  if (!m.producer_version.empty()) out.set_producer_version(m.producer_version);
  if (!m.domain.empty()) out.set_domain(m.domain);
  if (m.model_version != 0) out.set_model_version(m.model_version);
  if (!m.doc.empty()) out.set_doc_string(m.doc);
  for (const auto& [key, value] : m.metadata) {
    auto& pair = *out.add_metadata_props();
    pair.set_key(key);
    pair.set_value(value);
  }
  for (const Function& f : m.functions) FillFunction(f, *out.add_functions());
  FillBody(m.graph, *out.mutable_graph());
}

// The bytes of the external file, its tensors in the graph's order; tensors over the same bytes of memory share them there.
class DataFile {
 public:
  explicit DataFile(const ByteSink& sink) : sink_(sink) {}
  // Writes the tensor's bytes; returns where they begin.
  Result<uint64_t> Add(std::span<const std::byte> bytes) {
    static constexpr std::byte kZeros[kLargePage] = {};
    const std::pair place(bytes.data(), bytes.size());
    if (const auto known = places_.find(place); known != places_.end()) return known->second;
    const uint64_t begin = Aligned(at_, bytes.size());
    places_[place] = begin;
    SLM_RETURN_IF_ERROR(sink_(std::span(kZeros, static_cast<size_t>(begin - at_))));
    SLM_RETURN_IF_ERROR(sink_(bytes));
    at_ = begin + bytes.size();
    return begin;
  }

 private:
  const ByteSink& sink_;
  std::map<std::pair<const std::byte*, size_t>, uint64_t> places_;
  uint64_t at_ = 0;
};

void AddEntry(::onnx::TensorProto& t, const char* key, const std::string& value) {
  auto& pair = *t.add_external_data();
  pair.set_key(key);
  pair.set_value(value);
}

// A dense initializer whose bytes are somewhere else.
void FillOutside(const Tensor& t, const TensorPlace& place, ::onnx::TensorProto& out) {
  Tensor empty = t;
  empty.data = {};
  FillTensor(empty, out);
  out.clear_raw_data();
  out.set_data_location(::onnx::TensorProto::EXTERNAL);
  AddEntry(out, "location", place.file);
  AddEntry(out, "offset", std::to_string(place.offset));
  AddEntry(out, "length", std::to_string(StoredBytes(t.type, t.n_values())));
}

Status CheckFileName(const std::string& name) {
  if (IsPlainLocation(name) && name.find('/') == std::string::npos) return Ok();
  return Error(Code::kInvalidArgument, "data file name " + model::Quoted(name) + " is not a plain name", "name a file");
}

Error TooLarge(uint64_t bytes) {
  return Error(Code::kLimit, fmt::format("the ONNX message would have {} bytes; it must stay below 2 GiB", bytes),
               "put more of the weights into external data");
}

}  // namespace

Status WriteModel(const Model& model, const WriteOptions& options, const ByteSink& message, const ByteSink& data) {
  SLM_RETURN_IF_ERROR(CheckFileName(options.data_name));
  for (const auto& [tensor, place] : options.places) SLM_RETURN_IF_ERROR(CheckFileName(place.file));
  const auto outside = [&](const Tensor& t) {
    return t.type != ElementType::kString && t.data.size() > 0 && t.data.size() >= options.external_from_bytes;
  };
  uint64_t inside = 0;
  for (const Tensor& t : model.graph.initializers) inside += outside(t) || options.places.contains(t.name) ? 0 : t.data.size();
  if (inside > INT_MAX) return TooLarge(inside);
  ::onnx::ModelProto out;
  FillModel(model, out);
  DataFile file(data);
  for (const Tensor& t : model.graph.initializers) {
    ::onnx::TensorProto& proto = *out.mutable_graph()->add_initializer();
    if (const auto known = options.places.find(t.name); known != options.places.end()) {
      FillOutside(t, known->second, proto);
    } else if (outside(t)) {
      SLM_ASSIGN_OR_RETURN(const uint64_t begin, file.Add(t.data));
      FillOutside(t, {options.data_name, begin}, proto);
    } else {
      FillTensor(t, proto);
    }
  }
  if (const size_t bytes = out.ByteSizeLong(); bytes > INT_MAX) return TooLarge(bytes);
  const std::string bytes = out.SerializeAsString();
  return message(std::as_bytes(std::span(bytes)));
}

}  // namespace slm::onnx
