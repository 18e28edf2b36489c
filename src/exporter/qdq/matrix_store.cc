#include "exporter/qdq/matrix_store.h"

#include <fmt/format.h>

#include <cstring>

namespace slm::exporter {
using graph::ConstantPart;
using onnx::ElementType;

namespace {
using model::CodedMatrix;

template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Rows of codes [n][k] as signed codes [k][n]: bytes, or two in a byte, the first in the lower half.
std::vector<std::byte> Packed(const CodedMatrix& m, const std::vector<int64_t>& rows) {
  const int64_t n = static_cast<int64_t>(rows.size()), k = m.width;
  std::vector<std::byte> out(static_cast<size_t>(m.bits == 8 ? n * k : (n * k + 1) / 2));
  const int middle = 1 << (m.bits - 1);
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t* from = m.codes.data() + rows[static_cast<size_t>(i)] * k;
    for (int64_t j = 0; j < k; ++j) {
      const auto code = static_cast<uint8_t>(static_cast<int>(from[j]) - middle);
      const int64_t at = j * n + i;
      if (m.bits == 8) out[static_cast<size_t>(at)] = static_cast<std::byte>(code);
      else out[static_cast<size_t>(at / 2)] |= static_cast<std::byte>((code & 15) << (4 * (at % 2)));
    }
  }
  return out;
}

}  // namespace

onnx::Tensor MatrixStore::Keep(const std::string& name, ElementType type, std::vector<int64_t> dims, std::vector<std::byte> bytes) {
  onnx::Tensor t;
  t.name = name;
  t.type = type;
  t.dims = std::move(dims);
  t.data = bytes_->emplace_back(std::move(bytes));
  return t;
}

const onnx::Tensor& MatrixStore::Floats(const std::string& name, const MatrixUse& use) {
  if (const auto known = floats_.find(name); known != floats_.end()) return known->second;
  const graph::Shape& shape = g_.values[use.value].shape;
  const int64_t n = shape[0], k = shape[1];
  const std::vector<float> rows = Reordered(graph::FixedValues(g_, use.value), k, use.order);
  std::vector<float> values(rows.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) values[static_cast<size_t>(j * n + i)] = rows[static_cast<size_t>(i * k + j)] * use.factor;
  return floats_[name] = Keep(name, ElementType::kFloat, {k, n}, BytesOf(values));
}

const onnx::Tensor& MatrixStore::Vector(const std::string& name, const VectorUse& use) {
  if (const auto known = floats_.find(name); known != floats_.end()) return known->second;
  return floats_[name] = Keep(name, ElementType::kFloat, use.dims, BytesOf(use.values));
}

Result<const MatrixStore::Coded*> MatrixStore::Codes(const std::string& name, const MatrixUse& use,
                                                     const std::map<const model::Tensor*, CodedMatrix>& matrices) {
  if (const auto known = coded_.find(name); known != coded_.end()) return &known->second;
  const auto& constant = g_.values[use.value].constant;
  const int64_t n = g_.values[use.value].shape[0];
  if (!constant || constant->parts.size() != 1)
    return Error(Code::kInvalidArgument, name + ": not rows of one tensor of the model", "give the plain graph, without passes");
  const ConstantPart& part = constant->parts[0];
  const auto found = matrices.find(part.tensor);
  if (found == matrices.end())
    return Error(Code::kInvalidArgument, name + ": no codes for this matrix", "quantize every matrix of the graph");
  const CodedMatrix& m = found->second;
  const int64_t groups = m.group == 0 ? 1 : m.width / m.group;
  if (m.rows != part.tensor->dims[0] || m.width != part.tensor->dims[1] || (m.bits != 4 && m.bits != 8) || groups < 1 ||
      (m.group != 0 && m.width % m.group != 0) || static_cast<int64_t>(m.codes.size()) != m.rows * m.width ||
      static_cast<int64_t>(m.scales.size()) != m.rows * groups)
    return Error(Code::kInvalidArgument, name + ": codes of another shape than the matrix");
  std::vector<int64_t> rows(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i)] = part.row_begin + (use.order.heads == 0 ? i : use.order.Source(i));
  std::vector<float> scales(static_cast<size_t>(groups * n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t g = 0; g < groups; ++g)
      scales[static_cast<size_t>(g * n + i)] = m.scales[static_cast<size_t>(rows[static_cast<size_t>(i)] * groups + g)] * use.factor;
  const ElementType type = m.bits == 8 ? ElementType::kInt8 : ElementType::kInt4;
  const std::vector<int64_t> dims = m.group == 0 ? std::vector<int64_t>{n} : std::vector<int64_t>{groups, n};
  Coded& c = coded_[name];
  c.group = m.group;
  c.codes = Keep(name + ".codes", type, {m.width, n}, Packed(m, rows));
  c.scales = Keep(name + ".scales", ElementType::kFloat, dims, BytesOf(scales));
  c.zeros = Keep(name + ".zeros", type, dims, std::vector<std::byte>(onnx::StoredBytes(type, groups * n)));
  return &c;
}

}  // namespace slm::exporter
