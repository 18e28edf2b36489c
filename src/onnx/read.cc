// ReadModel and ReadTensor: bytes through protobuf's parser, then converted and checked. See onnx.h.
#include <fmt/format.h>

#include <climits>
#include <filesystem>

#include "model/quoted.h"
#include "onnx/check.h"
#include "onnx/convert.h"
#include "onnx/onnx.h"
#include "onnx/scan.h"

namespace slm::onnx {
namespace {

using model::Quoted;

constexpr const char* kHint = "the file is damaged or not ONNX: export or fetch it again";
constexpr int64_t kNewestIr = 14;

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

template <class Message>
Status Parse(std::span<const std::byte> bytes, Root root, Message& out) {
  if (bytes.empty()) return Corrupt("the file is empty");
  if (bytes.size() > INT_MAX)
    return Error(Code::kLimit, fmt::format("{} bytes; an ONNX message ends below 2 GiB", bytes.size()),
                 "save the model with its weights as external data");
  SLM_RETURN_IF_ERROR(CheckExpansion(bytes, root));
  // Protobuf itself bounds nesting (100 levels) and checks every length against the end.
  if (!out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Corrupt("not a protobuf message, cut off or nested too deep");
  return Ok();
}

Status CheckVersions(const Model& m) {
  if (m.ir_version < 1) return Corrupt(fmt::format("IR version {}", m.ir_version));
  if (m.ir_version > kNewestIr)
    return Error(Code::kUnsupported, fmt::format("IR version {}; this build knows versions up to {}", m.ir_version, kNewestIr),
                 "export the model for an older IR version");
  for (size_t i = 0; i < m.opsets.size(); ++i) {
    const Opset& o = m.opsets[i];
    if (o.version < 1) return Corrupt(fmt::format("operator set {} has version {}", Quoted(o.domain), o.version));
    for (size_t j = 0; j < i; ++j)
      if (m.opsets[j].domain == o.domain) return Corrupt("operator set " + Quoted(o.domain) + " is imported twice");
  }
  return Ok();
}

Status Fill(Model& m, ::onnx::ModelProto& proto, Conversion c) {
  if (!proto.has_graph()) return Corrupt("no graph");
  m.ir_version = proto.ir_version();
  m.model_version = proto.model_version();
  m.producer_name = std::move(*proto.mutable_producer_name());
  m.producer_version = std::move(*proto.mutable_producer_version());
  m.domain = std::move(*proto.mutable_domain());
  m.doc = std::move(*proto.mutable_doc_string());
  m.opsets = ConvertOpsets(*proto.mutable_opset_import());
  SLM_RETURN_IF_ERROR(CheckVersions(m));
  for (auto& pair : *proto.mutable_metadata_props())
    m.metadata.emplace_back(std::move(*pair.mutable_key()), std::move(*pair.mutable_value()));
  for (auto& f : *proto.mutable_functions()) {
    SLM_ASSIGN_OR_RETURN(Function function, ConvertFunction(f, c));
    m.functions.push_back(std::move(function));
  }
  SLM_ASSIGN_OR_RETURN(m.graph, ConvertGraph(*proto.mutable_graph(), c));
  return CheckNames(m);
}

}  // namespace

Result<Model> ParseModel(std::span<const std::byte> bytes, const std::string& folder) {
  auto storage = std::make_shared<Storage>();
  SLM_RETURN_IF_ERROR(Parse(bytes, Root::kModel, storage->model));
  Model m;
  ExternalFiles external(folder);
  SLM_RETURN_IF_ERROR(Fill(m, storage->model, {*storage, external}));
  m.file_bytes = bytes.size();
  m.external_files = external.list();
  m.maps = external.TakeMaps();
  m.storage = std::move(storage);
  return m;
}

Result<Model> ReadModel(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  auto m = ParseModel(file.bytes(), folder.empty() ? "." : folder);
  if (!m.ok()) return m.error().At(path);
  m.value().path = path;
  return m;
}

Result<LooseTensor> ParseTensor(std::span<const std::byte> bytes) {
  auto storage = std::make_shared<Storage>();
  SLM_RETURN_IF_ERROR(Parse(bytes, Root::kTensor, storage->tensor));
  ExternalFiles none("");
  SLM_ASSIGN_OR_RETURN(Tensor tensor, ConvertTensor(storage->tensor, {*storage, none}));
  return LooseTensor{std::move(tensor), std::move(storage)};
}

Result<LooseTensor> ReadTensor(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  auto t = ParseTensor(file.bytes());
  if (!t.ok()) return t.error().At(path);
  return t;
}

}  // namespace slm::onnx
