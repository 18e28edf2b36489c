#include "exporter/genai/initializers.h"

#include <cstring>

#include "base/check.h"

namespace slm::exporter {
using graph::ValueId;
using onnx::ElementType;

namespace {
// [n, k] as [k, n].
std::vector<float> TransposedRows(const std::vector<float>& from, int64_t n, int64_t k) {
  std::vector<float> to(from.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) to[static_cast<size_t>(j * n + i)] = from[static_cast<size_t>(i * k + j)];
  return to;
}
}  // namespace

std::string Initializers::Add(const std::string& name, ElementType type, std::vector<int64_t> dims, const void* data, size_t n_bytes) {
  const auto [at, is_new] = known_.emplace(name, out_->initializers.size());
  if (!is_new) return name;
  const auto* bytes = static_cast<const std::byte*>(data);
  const std::vector<std::byte>& kept = bytes_->emplace_back(bytes, bytes + n_bytes);
  onnx::Tensor t;
  t.name = name;
  t.type = type;
  t.dims = std::move(dims);
  t.data = kept;
  out_->initializers.push_back(std::move(t));
  return name;
}

std::string Initializers::Floats(const std::string& name, std::vector<int64_t> dims, const std::vector<float>& values) {
  return Add(name, ElementType::kFloat, std::move(dims), values.data(), values.size() * sizeof(float));
}

std::string Initializers::Integers(const std::string& name, std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  return Add(name, ElementType::kInt64, std::move(dims), values.data(), values.size() * sizeof(int64_t));
}

std::string Initializers::Fixed(ValueId v) {
  const graph::Value& value = g_.values[static_cast<size_t>(v)];
  if (known_.contains(value.name)) return value.name;
  return Floats(value.name, value.shape, graph::FixedValues(g_, v));
}

std::string Initializers::Transposed(ValueId v) {
  const graph::Value& value = g_.values[static_cast<size_t>(v)];
  const std::string name = value.name + ".transposed";
  if (known_.contains(name)) return name;
  const int64_t n = value.shape[0], k = value.shape[1];
  return Floats(name, {k, n}, TransposedRows(graph::FixedValues(g_, v), n, k));
}

const Initializers::Blocks& Initializers::BlocksOf(ValueId v) {
  const auto [at, is_new] = blocks_.try_emplace(v);
  Blocks& b = at->second;
  if (!is_new) return b;
  const graph::Value& value = g_.values[static_cast<size_t>(v)];
  const BlockMatrix m = ReadBlocks(*value.constant);
  b.bits = m.bits, b.block = m.block, b.n = m.n, b.k = m.k;
  const int64_t blocks = m.k / m.block;
  b.codes = Add(value.name + ".codes", ElementType::kUint8, {m.n, blocks, m.block * m.bits / 8}, m.codes.data(), m.codes.size());
  b.scales = Floats(value.name + ".scales", {m.n, blocks}, m.scales);
  const auto row_bytes = static_cast<int64_t>(m.zeros.size()) / m.n;
  if (!m.zeros.empty()) b.zeros = Add(value.name + ".zeros", ElementType::kUint8, {m.n, row_bytes}, m.zeros.data(), m.zeros.size());
  if (!m.offsets.empty()) b.offsets = Floats(value.name + ".offsets", {blocks, m.n}, TransposedRows(m.offsets, m.n, blocks));
  return b;
}

std::string Initializers::FlatCodes(ValueId v) {
  const Blocks& b = BlocksOf(v);
  const std::string name = b.codes + ".flat";
  if (!known_.emplace(name, out_->initializers.size()).second) return name;
  onnx::Tensor t = out_->initializers[known_.at(b.codes)];
  t.name = name;
  t.dims = {b.n, b.k * b.bits / 8};
  out_->initializers.push_back(std::move(t));
  return name;
}

}  // namespace slm::exporter
