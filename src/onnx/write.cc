// WriteModel: the structures of onnx.h back to protobuf's messages, large tensors to a file beside the model. See onnx.h.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <map>

#include "onnx-ml.pb.h"
#include "onnx/onnx.h"

namespace slm::onnx {
namespace {

namespace fs = std::filesystem;
using Kind = Attribute::Kind;

// A file that has its name only once it is whole.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), part_(path_ + ".part") {}
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(part_.c_str());
  }
  Status Open() {
    fd_ = open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd_ < 0 ? Status(Failed()) : Ok();
  }
  Status Write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failed();
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return Ok();
  }
  Status Commit() {
    if (fsync(fd_) != 0 || rename(part_.c_str(), path_.c_str()) != 0) return Failed();
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0 ? Ok() : Status(Failed());
  }

 private:
  Error Failed() const { return Error(Code::kIo, path_ + ": " + strerror(errno), "check the path, its permissions and the free space"); }
  std::string path_, part_;
  int fd_ = -1;
};

// Where tensors lie in the file beside the model. Tensors over the same bytes share them.
class Placement {
 public:
  struct Part {
    uint64_t offset = 0;
    std::span<const std::byte> data;
  };
  uint64_t Place(std::span<const std::byte> data) {
    const auto [known, is_new] = places_.emplace(std::pair(data.data(), data.size()), 0);
    if (!is_new) return known->second;
    constexpr uint64_t kPage = 4096, kWindowsPage = 65536, kLarge = 1 << 20;
    const uint64_t step = data.size() > kLarge ? kWindowsPage : kPage;
    end_ = (end_ + step - 1) / step * step;
    known->second = end_;
    parts_.push_back({end_, data});
    end_ += data.size();
    return known->second;
  }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  std::map<std::pair<const std::byte*, size_t>, uint64_t> places_;
  std::vector<Part> parts_;
  uint64_t end_ = 0;
};

// Tensors of the main graph go beside the model when they are long enough; others never do.
struct External {
  Placement* placement = nullptr;
  std::string location;
  uint64_t from_bytes = 0;
};

void Put(::onnx::TensorProto* out, const Tensor& t, const External* external) {
  if (!t.name.empty()) out->set_name(t.name);
  out->set_data_type(static_cast<int>(t.type));
  for (const int64_t d : t.dims) out->add_dims(d);
  for (const std::string& s : t.strings) out->add_string_data(s);
  if (t.type == ElementType::kString) return;
  if (!external || t.data.size() < external->from_bytes) {
    out->set_raw_data(t.data.data(), t.data.size());
    return;
  }
  const std::pair<const char*, std::string> entries[] = {{"location", external->location},
                                                         {"offset", std::to_string(external->placement->Place(t.data))},
                                                         {"length", std::to_string(t.data.size())}};
  for (const auto& [key, value] : entries) {
    auto* entry = out->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  out->set_data_location(::onnx::TensorProto::EXTERNAL);
}

void Put(::onnx::SparseTensorProto* out, const SparseTensor& s) {
  Put(out->mutable_values(), s.values, nullptr);
  Put(out->mutable_indices(), s.indices, nullptr);
  for (const int64_t d : s.dims) out->add_dims(d);
}

template <class Proto>
void PutShaped(Proto* out, const ValueType& t) {
  out->set_elem_type(static_cast<int>(t.element));
  if (!t.has_shape) return;
  auto* shape = out->mutable_shape();
  for (const Dim& d : t.shape) {
    auto* dim = shape->add_dim();
    if (d.value >= 0) dim->set_dim_value(d.value);
    else if (!d.symbol.empty()) dim->set_dim_param(d.symbol);
  }
}

void Put(::onnx::TypeProto* out, const ValueType& t) {
  using ValueKind = ValueType::Kind;
  switch (t.kind) {
    case ValueKind::kNone: break;
    case ValueKind::kTensor: PutShaped(out->mutable_tensor_type(), t); break;
    case ValueKind::kSparseTensor: PutShaped(out->mutable_sparse_tensor_type(), t); break;
    case ValueKind::kSequence: Put(out->mutable_sequence_type()->mutable_elem_type(), t.inner.at(0)); break;
    case ValueKind::kOptional: Put(out->mutable_optional_type()->mutable_elem_type(), t.inner.at(0)); break;
    case ValueKind::kMap:
      out->mutable_map_type()->set_key_type(static_cast<int>(t.element));
      Put(out->mutable_map_type()->mutable_value_type(), t.inner.at(0));
      break;
    case ValueKind::kOpaque: out->mutable_opaque_type(); break;
  }
}

void Put(::onnx::ValueInfoProto* out, const ValueInfo& v) {
  out->set_name(v.name);
  if (v.type.kind != ValueType::Kind::kNone) Put(out->mutable_type(), v.type);
}

void Put(::onnx::GraphProto* out, const Graph& g, const External* external);

void Put(::onnx::AttributeProto* out, const Attribute& a) {
  out->set_name(a.name);
  out->set_type(static_cast<::onnx::AttributeProto::AttributeType>(a.kind));
  if (!a.ref.empty()) {
    out->set_ref_attr_name(a.ref);
    return;
  }
  switch (a.kind) {
    case Kind::kNone: break;
    case Kind::kFloat: out->set_f(a.floats.at(0)); break;
    case Kind::kInt: out->set_i(a.ints.at(0)); break;
    case Kind::kString: out->set_s(a.strings.at(0)); break;
    case Kind::kTensor: Put(out->mutable_t(), a.tensors.at(0), nullptr); break;
    case Kind::kGraph: Put(out->mutable_g(), a.graphs.at(0), nullptr); break;
    case Kind::kSparseTensor: Put(out->mutable_sparse_tensor(), a.sparse_tensors.at(0)); break;
    case Kind::kType: Put(out->mutable_tp(), a.types.at(0)); break;
    default:
      for (const float f : a.floats) out->add_floats(f);
      for (const int64_t i : a.ints) out->add_ints(i);
      for (const std::string& s : a.strings) out->add_strings(s);
      for (const Tensor& t : a.tensors) Put(out->add_tensors(), t, nullptr);
      for (const Graph& g : a.graphs) Put(out->add_graphs(), g, nullptr);
      for (const SparseTensor& s : a.sparse_tensors) Put(out->add_sparse_tensors(), s);
      for (const ValueType& t : a.types) Put(out->add_type_protos(), t);
  }
}

void Put(::onnx::NodeProto* out, const Node& n) {
  for (const std::string& s : n.inputs) out->add_input(s);
  for (const std::string& s : n.outputs) out->add_output(s);
  if (!n.name.empty()) out->set_name(n.name);
  out->set_op_type(n.op_type);
  if (!n.domain.empty()) out->set_domain(n.domain);
  if (!n.overload.empty()) out->set_overload(n.overload);
  for (const Attribute& a : n.attributes) Put(out->add_attribute(), a);
}

void Put(::onnx::GraphProto* out, const Graph& g, const External* external) {
  out->set_name(g.name);
  for (const Node& n : g.nodes) Put(out->add_node(), n);
  for (const Tensor& t : g.initializers) Put(out->add_initializer(), t, external);
  for (const SparseTensor& s : g.sparse_initializers) Put(out->add_sparse_initializer(), s);
  for (const ValueInfo& v : g.inputs) Put(out->add_input(), v);
  for (const ValueInfo& v : g.outputs) Put(out->add_output(), v);
  for (const ValueInfo& v : g.value_infos) Put(out->add_value_info(), v);
}

void Put(::google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto>* out, const std::vector<Opset>& opsets) {
  for (const Opset& o : opsets) {
    auto* id = out->Add();
    id->set_domain(o.domain);
    id->set_version(o.version);
  }
}

void Put(::onnx::FunctionProto* out, const Function& f) {
  out->set_name(f.name);
  if (!f.domain.empty()) out->set_domain(f.domain);
  if (!f.overload.empty()) out->set_overload(f.overload);
  for (const std::string& s : f.inputs) out->add_input(s);
  for (const std::string& s : f.outputs) out->add_output(s);
  for (const std::string& s : f.attribute_names) out->add_attribute(s);
  for (const Attribute& a : f.attributes) Put(out->add_attribute_proto(), a);
  for (const Node& n : f.nodes) Put(out->add_node(), n);
  Put(out->mutable_opset_import(), f.opsets);
  for (const ValueInfo& v : f.value_infos) Put(out->add_value_info(), v);
}

void Put(::onnx::ModelProto* out, const Model& m, const External& external) {
  out->set_ir_version(m.ir_version);
  if (!m.producer_name.empty()) out->set_producer_name(m.producer_name);
  if (!m.producer_version.empty()) out->set_producer_version(m.producer_version);
  if (!m.domain.empty()) out->set_domain(m.domain);
  if (m.model_version != 0) out->set_model_version(m.model_version);
  if (!m.doc.empty()) out->set_doc_string(m.doc);
  Put(out->mutable_opset_import(), m.opsets);
  Put(out->mutable_graph(), m.graph, &external);
  for (const Function& f : m.functions) Put(out->add_functions(), f);
  for (const auto& [key, value] : m.metadata) {
    auto* pair = out->add_metadata_props();
    pair->set_key(key);
    pair->set_value(value);
  }
}

Status WriteParts(NewFile& file, const Placement& placement) {
  static const std::vector<std::byte> kPadding(65536);
  uint64_t at = 0;
  SLM_RETURN_IF_ERROR(file.Open());
  for (const Placement::Part& p : placement.parts()) {
    SLM_RETURN_IF_ERROR(file.Write(std::span(kPadding).first(static_cast<size_t>(p.offset - at))));
    SLM_RETURN_IF_ERROR(file.Write(p.data));
    at = p.offset + p.data.size();
  }
  return Ok();
}

}  // namespace

Status WriteModel(const Model& model, const std::string& path, const WriteOptions& options) {
  Placement placement;
  const std::string data_path = path + ".data";
  ::onnx::ModelProto proto;
  Put(&proto, model, {&placement, fs::path(data_path).filename().string(), options.external_from_bytes});
  if (proto.ByteSizeLong() > INT_MAX)
    return Error(Code::kLimit, fmt::format("{}: the message takes {} bytes, at most {} can be read again", path, proto.ByteSizeLong(), INT_MAX),
                 "keep smaller tensors as external data too");
  NewFile data(data_path), message(path);
  if (!placement.parts().empty()) SLM_RETURN_IF_ERROR(WriteParts(data, placement));
  SLM_RETURN_IF_ERROR(message.Open());
  const std::string bytes = proto.SerializeAsString();
  SLM_RETURN_IF_ERROR(message.Write(std::as_bytes(std::span(bytes))));
  if (!placement.parts().empty()) SLM_RETURN_IF_ERROR(data.Commit());
  return message.Commit();
}

}  // namespace slm::onnx
