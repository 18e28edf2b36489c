// TensorProto to Tensor: where the values lie (raw, numbers, strings, an external file), and that there are as many as the shape says.
#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "model/quoted.h"
#include "onnx/convert.h"

namespace slm::onnx {
namespace {

using model::Quoted;

constexpr const char* kHint = "the file is damaged: export or fetch it again";
constexpr int kMaxRank = 64;

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

// Number of values, checked so that neither it nor a count of bits overflows.
Result<int64_t> CountValues(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) return Corrupt(fmt::format("{} dimensions; at most {} are read", dims.size(), kMaxRank));
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 128;
  int64_t n = 1;
  bool empty = false;
  for (const int64_t d : dims) {
    if (d < 0) return Corrupt("shape " + ShapeText(dims) + " has a negative dimension");
    if (d == 0) empty = true;
    else if (n > kMax / d) return Corrupt("shape " + ShapeText(dims) + " has more values than can be counted");
    else n *= d;
  }
  return empty ? 0 : n;
}

template <class Field>
int CountFields(const Field& proto) {
  return (proto.float_data_size() > 0) + (proto.int32_data_size() > 0) + (proto.string_data_size() > 0) + (proto.int64_data_size() > 0) +
         (proto.double_data_size() > 0) + (proto.uint64_data_size() > 0) + (proto.has_raw_data() ? 1 : 0);
}

// Numbers of the message, each cut to `width` bytes, as one packed block; little-endian machines only, which is all we build for.
template <class Numbers>
std::span<const std::byte> Repack(const Numbers& numbers, size_t width, Conversion c) {
  std::vector<std::byte>& out = c.storage.repacked.emplace_back(static_cast<size_t>(numbers.size()) * width);
  size_t at = 0;
  for (const auto v : numbers) {
    std::memcpy(out.data() + at, &v, width);
    at += width;
  }
  return out;
}

// Values that are written as numbers; the field is fixed by the type.
Result<std::span<const std::byte>> NumberedData(const ::onnx::TensorProto& proto, ElementType type, Conversion c) {
  const auto wrong = [&] { return Corrupt(fmt::format("the values are in a field that is not for type {}", Info(type).name)); };
  const auto only = [&](int size) { return CountFields(proto) == (size > 0 ? 1 : 0); };
  switch (type) {
    case ElementType::kFloat:
    case ElementType::kComplex64:
      if (!only(proto.float_data_size())) return wrong();
      return Repack(proto.float_data(), 4, c);
    case ElementType::kDouble:
    case ElementType::kComplex128:
      if (!only(proto.double_data_size())) return wrong();
      return Repack(proto.double_data(), 8, c);
    case ElementType::kInt64:
      if (!only(proto.int64_data_size())) return wrong();
      return Repack(proto.int64_data(), 8, c);
    case ElementType::kUint32:
    case ElementType::kUint64:
      if (!only(proto.uint64_data_size())) return wrong();
      return Repack(proto.uint64_data(), static_cast<size_t>(Info(type).bits / 8), c);
    default: break;
  }
  if (!only(proto.int32_data_size())) return wrong();
  return Repack(proto.int32_data(), static_cast<size_t>(std::max(Info(type).bits / 8, 1)), c);  // below a byte: a number a byte
}

ExternalEntry Entry(const ::onnx::TensorProto& proto) {
  ExternalEntry e;
  for (const auto& pair : proto.external_data()) {
    if (pair.key() == "location") e.location = pair.value(), e.has_location = true;
    if (pair.key() == "offset") e.offset = pair.value();
    if (pair.key() == "length") e.length = pair.value(), e.has_length = true;
  }
  return e;
}

Result<Tensor> Convert(::onnx::TensorProto& proto, Conversion c) {
  Tensor t;
  if (proto.data_type() < 0 || proto.data_type() == 0)
    return Corrupt(fmt::format("element type {} is not one of ONNX's", proto.data_type()));
  if (!IsElementType(proto.data_type()))
    return Error(Code::kUnsupported, fmt::format("element type {} is not known to this build", proto.data_type()),
                 "export the model with a type of ONNX 1.23 or older");
  if (proto.has_segment()) return Error(Code::kUnsupported, "a tensor in segments", "write the model with whole tensors");
  t.type = static_cast<ElementType>(proto.data_type());
  t.dims.assign(proto.dims().begin(), proto.dims().end());
  SLM_ASSIGN_OR_RETURN(const int64_t n, CountValues(t.dims));
  if (t.type == ElementType::kString) {
    if (proto.data_location() == ::onnx::TensorProto::EXTERNAL || CountFields(proto) != (proto.string_data_size() > 0 ? 1 : 0))
      return Corrupt("strings must be in the string field");
    if (proto.string_data_size() != n) return Corrupt(fmt::format("{} strings, its shape needs {}", proto.string_data_size(), n));
    for (auto& s : *proto.mutable_string_data()) t.strings.push_back(std::move(s));
    return t;
  }
  const uint64_t bytes = StoredBytes(t.type, n);
  if (proto.data_location() == ::onnx::TensorProto::EXTERNAL) {
    if (CountFields(proto) > 0) return Corrupt("values inside the file and in an external file");
    SLM_ASSIGN_OR_RETURN(t.data, c.external.Part(Entry(proto), bytes, t.external_file));
    return t;
  }
  if (proto.has_raw_data()) {
    if (CountFields(proto) > 1) return Corrupt("values in more than one field");
    t.data = std::as_bytes(std::span(proto.raw_data()));
  } else {
    SLM_ASSIGN_OR_RETURN(t.data, NumberedData(proto, t.type, c));
  }
  if (t.data.size() != bytes)
    return Corrupt(
        fmt::format("{} bytes of values, shape {} of type {} needs {}", t.data.size(), ShapeText(t.dims), Info(t.type).name, bytes));
  return t;
}

}  // namespace

Result<Tensor> ConvertTensor(::onnx::TensorProto& proto, Conversion c) {
  auto t = Convert(proto, c);
  if (!t.ok()) return t.error().At("tensor " + Quoted(proto.name()));
  t.value().name = std::move(*proto.mutable_name());
  return t;
}

Result<SparseTensor> ConvertSparseTensor(::onnx::SparseTensorProto& proto, Conversion c) {
  SparseTensor s;
  SLM_ASSIGN_OR_RETURN(s.values, ConvertTensor(*proto.mutable_values(), c));
  SLM_ASSIGN_OR_RETURN(s.indices, ConvertTensor(*proto.mutable_indices(), c));
  s.dims.assign(proto.dims().begin(), proto.dims().end());
  auto n = CountValues(s.dims);
  if (!n.ok()) return n.error().At("sparse tensor " + Quoted(s.values.name));
  const int64_t count = s.values.n_values(), rank = static_cast<int64_t>(s.dims.size());
  const std::vector<int64_t> flat{count}, rows{count, rank};
  if (s.values.dims != flat || s.indices.type != ElementType::kInt64 || (s.indices.dims != flat && s.indices.dims != rows))
    return Corrupt("values and indices do not belong together").At("sparse tensor " + Quoted(s.values.name));
  return s;
}

}  // namespace slm::onnx
