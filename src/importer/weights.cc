// See weights.h.
#include "importer/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/quoted.h"

namespace slm::importer {
namespace {

using model::GroupedLayout;
using model::GroupedMatrix;
using model::Quoted;
using onnx::ElementType;

constexpr int64_t kMostRows = INT32_MAX;  // of either side of a matrix

Error Unsupported(const onnx::Tensor& t, const std::string& what) {
  return Error(Code::kUnsupported,
               fmt::format("tensor {} ({} {}): {}", Quoted(t.name), onnx::Info(t.type).name, onnx::ShapeText(t.dims), what),
               "export the model in another form");
}
Error Corrupt(const onnx::Tensor& t, const std::string& want) {
  return Error(Code::kCorrupt, fmt::format("tensor {} ({} {}): {}", Quoted(t.name), onnx::Info(t.type).name, onnx::ShapeText(t.dims), want),
               "the file contradicts itself: export or fetch it again");
}

std::string_view NameOf(int bits) { return bits == 2 ? "ONNX_INT2" : bits == 4 ? "ONNX_INT4" : "ONNX_INT8"; }

struct CodeType {
  int bits = 0;  // 0: no codes
  bool is_signed = false;
};
CodeType CodesOf(ElementType t) {
  const onnx::ElementInfo& info = onnx::Info(t);
  const bool codes = (info.kind == onnx::ElementKind::kSigned || info.kind == onnx::ElementKind::kUnsigned) && info.bits <= 8;
  return codes ? CodeType{info.bits, info.kind == onnx::ElementKind::kSigned} : CodeType{};
}

// A float matrix as MatMul has it, [K, N].
GroupedMatrix ColumnsOf(const onnx::Tensor& t, DType type) {
  GroupedMatrix g;
  g.layout = GroupedLayout::kColumns;
  g.n = t.dims[1], g.k = g.group = t.dims[0], g.n_groups = 1;
  g.scale_type = type;
  g.codes = t.data;
  return g;
}

Status CheckSides(const onnx::Tensor& t, int64_t n, int64_t k) {
  if (n < 1 || k < 1 || n > kMostRows || k > kMostRows) return Unsupported(t, fmt::format("a matrix of {} rows and {} columns", n, k));
  return Ok();
}

}  // namespace

std::vector<int64_t> WeightView::dims() const {
  if (!shape.empty()) return shape;
  std::vector<int64_t> d = values->dims;
  if (transposed) std::swap(d[0], d[1]);
  return d;
}

Result<DType> FloatType(const onnx::Tensor& t) {
  if (t.type == ElementType::kFloat) return DType::kF32;
  if (t.type == ElementType::kFloat16) return DType::kF16;
  if (t.type == ElementType::kBfloat16) return DType::kBF16;
  return Unsupported(t, "weights are FLOAT, FLOAT16 or BFLOAT16");
}

Result<std::vector<float>> FloatValues(const onnx::Tensor& t) {
  SLM_ASSIGN_OR_RETURN(const DType type, FloatType(t));
  std::vector<float> out(static_cast<size_t>(t.n_values()));
  model::Dequantize(type, t.data, 0, t.n_values(), out.data());
  return out;
}

std::span<const std::byte> Weights::Keep(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  return bytes_->emplace_back(from, from + bytes);
}

std::span<const std::byte> Weights::NoZeros() {
  constexpr std::byte kZero{0};
  if (no_zeros_.empty()) no_zeros_ = Keep(&kZero, sizeof kZero);
  return no_zeros_;
}

const model::Tensor* Weights::Add(model::Tensor t) {
  const GroupedMatrix* g = t.grouped.get();
  std::vector<int64_t> form = t.dims;
  if (g) {
    const auto zeros = reinterpret_cast<intptr_t>(g->zeros.data());
    form.insert(form.end(), {static_cast<int64_t>(g->layout), g->bits, g->group, g->strides.code_row, zeros});
  }
  const Key key{g ? g->codes.data() : t.data.data(), g ? g->scales.data() : nullptr, g ? g->offsets.data() : nullptr, std::move(form)};
  const auto [at, is_new] = known_.emplace(key, nullptr);
  if (is_new) {
    tensors_.push_back(std::move(t));
    at->second = &tensors_.back();
  }
  return at->second;
}

const model::Tensor* Weights::AddGrouped(const std::string& name, GroupedMatrix g) {
  g.facts = FactsOf(g);
  model::Tensor t;
  t.name = name;
  t.dtype = DType::kCount;
  t.foreign_type = NameOf(g.bits);
  t.dims = {g.n, g.k};
  t.grouped = std::make_shared<const GroupedMatrix>(g);
  return Add(std::move(t));
}

Result<const model::Tensor*> Weights::Matrix(const WeightView& v, Rows rows) {
  const onnx::Tensor& t = *v.values;
  if (t.dims.size() != 2 || !v.shape.empty()) return Unsupported(t, "a matrix has two dimensions, those of the file");
  if (v.scales) return Codes(v, rows);
  SLM_ASSIGN_OR_RETURN(const DType type, FloatType(t));
  SLM_RETURN_IF_ERROR(CheckSides(t, t.dims[0], t.dims[1]));
  model::Tensor out;
  out.name = t.name;
  if ((rows == Rows::kLast) == v.transposed) {
    out.dtype = type;
    out.dims = t.dims;
    out.data = t.data;
    return Add(std::move(out));
  }
  const GroupedMatrix g = ColumnsOf(t, type);
  if (const model::Tensor* table = KnownTable(g, type)) return table;
  out.dtype = DType::kCount;
  out.foreign_type = type == DType::kF32 ? "F32_COLUMNS" : type == DType::kF16 ? "F16_COLUMNS" : "BF16_COLUMNS";
  out.dims = {g.n, g.k};
  out.grouped = std::make_shared<const GroupedMatrix>(g);
  return Add(std::move(out));
}

const model::Tensor* Weights::KnownTable(const GroupedMatrix& columns, DType type) const {
  const auto at = tables_.find(columns.codes.data());
  const bool same = at != tables_.end() && at->second->dtype == type && at->second->dims == std::vector<int64_t>{columns.n, columns.k};
  return same ? at->second : nullptr;
}

Result<const model::Tensor*> Weights::Table(const WeightView& v) {
  const onnx::Tensor& t = *v.values;
  if (v.scales || !v.transposed || t.dims.size() != 2 || !v.shape.empty()) return Matrix(v, Rows::kFirst);
  model::Tensor out;
  out.name = t.name;
  SLM_ASSIGN_OR_RETURN(out.dtype, FloatType(t));
  SLM_RETURN_IF_ERROR(CheckSides(t, t.dims[0], t.dims[1]));
  const GroupedMatrix g = ColumnsOf(t, out.dtype);
  if (const model::Tensor* table = KnownTable(g, out.dtype)) return table;
  out.dims = {g.n, g.k};
  std::vector<std::byte>& rows = bytes_->emplace_back(t.data.size());
  constexpr int64_t kAtOnce = 64;  // rows: what of a column lies in a few cache lines
  const int64_t row_bytes = static_cast<int64_t>(rows.size()) / g.n;
  for (int64_t row = 0; row < g.n; row += kAtOnce)
    model::ReadColumnRows(g, row, std::min(row + kAtOnce, g.n), rows.data() + row * row_bytes);
  out.data = rows;
  return tables_[t.data.data()] = Add(std::move(out));
}

// DequantizeLinear: codes of any order, a scale for all, for each row, or for blocks of columns.
Result<const model::Tensor*> Weights::Codes(const WeightView& v, Rows rows) {
  const onnx::Tensor &t = *v.values, &s = *v.scales;
  const CodeType type = CodesOf(t.type);
  if (type.bits == 0) return Unsupported(t, "codes of 2, 4 or 8 bits are read");
  const size_t n_axis = (rows == Rows::kLast) != v.transposed ? 1 : 0, k_axis = 1 - n_axis;
  GroupedMatrix g;
  g.layout = GroupedLayout::kStrided;
  g.bits = type.bits;
  g.n = t.dims[n_axis], g.k = t.dims[k_axis];
  SLM_RETURN_IF_ERROR(CheckSides(t, g.n, g.k));
  g.strides.is_signed = type.is_signed;
  g.strides.code_row = n_axis == 0 ? t.dims[1] : 1;
  g.strides.code_column = n_axis == 0 ? 1 : t.dims[1];
  g.codes = t.data;
  SLM_ASSIGN_OR_RETURN(g.scale_type, FloatType(s));
  g.scales = s.data;
  const int64_t axis = v.axis < 0 ? v.axis + 2 : v.axis;
  g.group = g.k, g.n_groups = 1;
  if (v.block > 0) {
    if (axis != static_cast<int64_t>(k_axis)) return Unsupported(s, "blocks of rows; blocks of columns are read");
    g.group = std::min(v.block, g.k), g.n_groups = (g.k + g.group - 1) / g.group;
    std::vector<int64_t> want = t.dims;
    want[k_axis] = g.n_groups;
    if (s.dims != want) return Corrupt(s, "one scale for each block is needed: " + onnx::ShapeText(want));
    g.strides.scale_row = n_axis == 0 ? want[1] : 1, g.strides.scale_group = n_axis == 0 ? 1 : want[1];
  } else if (s.n_values() > 1) {
    if (axis != static_cast<int64_t>(n_axis)) return Unsupported(s, "scales of columns; scales of rows are read");
    if (s.dims.size() != 1 || s.dims[0] != g.n) return Corrupt(s, fmt::format("a scale for each of {} rows is needed", g.n));
    g.strides.scale_row = 1;
  } else if (s.n_values() != 1) {
    return Corrupt(s, "a scale is needed");
  }
  if (v.zeros) {
    if (v.zeros->type != t.type || v.zeros->dims != s.dims)
      return Corrupt(*v.zeros, "zero points of the codes' type and the scales' shape are needed");
    g.zeros = v.zeros->data;
    g.strides.zero_row = g.strides.scale_row, g.strides.zero_group = g.strides.scale_group;
  } else if (!type.is_signed) {
    g.zeros = NoZeros();
  }
  return AddGrouped(t.name, g);
}

Result<const model::Tensor*> Weights::Blocked(const BlockedView& v) {
  GroupedMatrix g;
  g.layout = GroupedLayout::kStrided;
  const CodeType type = CodesOf(v.codes->type);
  const bool bytes = v.codes->type == ElementType::kUint8;
  g.bits = bytes ? static_cast<int>(v.bits) : type.bits;
  if (type.bits == 0 || (g.bits != 2 && g.bits != 4 && g.bits != 8))
    return Unsupported(*v.codes, fmt::format("codes of {} bits; 2, 4 and 8 are read", v.bits));
  if (v.block < 16 || v.block > (1 << 20) || (v.block & (v.block - 1)) != 0)
    return Unsupported(*v.codes, fmt::format("blocks of {} columns", v.block));
  g.n = v.n, g.k = v.k;
  SLM_RETURN_IF_ERROR(CheckSides(*v.codes, g.n, g.k));
  g.n_groups = (g.k + v.block - 1) / v.block;
  g.group = std::min(v.block, g.k);
  // Rows of bytes are padded to whole blocks in MatMulNBits; a gathered table has rows of its width.
  const int64_t row = bytes && v.codes->dims.size() == 2 ? v.codes->dims[1] * 8 / g.bits : bytes ? g.n_groups * v.block : g.k;
  const auto has = static_cast<int64_t>(v.codes->data.size());
  if (row < g.k || g.n > has * 8 / (row * g.bits) || (g.n * row * g.bits + 7) / 8 != has)
    return Corrupt(*v.codes, fmt::format("codes of {} bits for {} rows of {} columns are needed", g.bits, g.n, g.k));
  g.codes = v.codes->data;
  g.strides.is_signed = type.is_signed;
  g.strides.code_row = row, g.strides.code_column = 1;
  SLM_ASSIGN_OR_RETURN(g.scale_type, FloatType(*v.scales));
  if (g.n_groups > has || v.scales->n_values() != g.n * g.n_groups)
    return Corrupt(*v.scales, fmt::format("{} scales are needed", g.n * g.n_groups));
  g.scales = v.scales->data;
  g.strides.scale_row = g.n_groups, g.strides.scale_group = 1;
  if (!v.zeros) {
    if (!bytes && !type.is_signed) g.zeros = NoZeros();
    return AddGrouped(v.codes->name, g);
  }
  const onnx::Tensor& z = *v.zeros;
  g.strides.zero_group = 1;
  if (z.type == v.codes->type) {
    const int64_t per_byte = 8 / g.bits;
    g.strides.zero_row = bytes ? (g.n_groups + per_byte - 1) / per_byte * per_byte : g.n_groups;
    if (z.data.size() != static_cast<size_t>((g.n * g.strides.zero_row * g.bits + 7) / 8))
      return Corrupt(z, "a zero point for each block is needed");
    g.zeros = z.data;
    return AddGrouped(v.codes->name, g);
  }
  // Zero points of the activations' type: whole numbers are zero points, others an offset.
  SLM_ASSIGN_OR_RETURN(const std::vector<float> zeros, FloatValues(z));
  if (static_cast<int64_t>(zeros.size()) != g.n * g.n_groups) return Corrupt(z, "a zero point for each block is needed");
  const float top = static_cast<float>((1 << g.bits) - 1);
  if (!std::all_of(zeros.begin(), zeros.end(), [&](float x) { return x >= 0 && x <= top && x == std::floor(x); }))
    return Unsupported(z, "zero points that are no codes");
  const int64_t per_byte = 8 / g.bits;
  g.strides.zero_row = (g.n_groups + per_byte - 1) / per_byte * per_byte;
  std::vector<uint8_t> packed(static_cast<size_t>(g.n * g.strides.zero_row / per_byte));
  for (int64_t i = 0; i < g.n * g.n_groups; ++i) {
    const int64_t to = i / g.n_groups * g.strides.zero_row + i % g.n_groups;
    packed[static_cast<size_t>(to / per_byte)] |=
        static_cast<uint8_t>(static_cast<int>(zeros[static_cast<size_t>(i)]) << (to % per_byte * g.bits));
  }
  g.zeros = Keep(packed.data(), packed.size());
  return AddGrouped(v.codes->name, g);
}

Result<const model::Tensor*> Weights::WithOffsets(const model::Tensor& m, const onnx::Tensor& offsets) {
  GroupedMatrix g = *m.grouped;
  if (offsets.type != ElementType::kFloat || offsets.dims != std::vector<int64_t>{g.n_groups, g.n} || !g.offsets.empty())
    return Unsupported(offsets, fmt::format("offsets of {} groups and {} rows are needed", g.n_groups, g.n));
  g.offsets = offsets.data;
  g.strides.offset_row = 1, g.strides.offset_group = g.n;
  return AddGrouped(m.name, g);
}

Result<const model::Tensor*> Weights::Vector(const onnx::Tensor& t) {
  model::Tensor out;
  out.name = t.name;
  SLM_ASSIGN_OR_RETURN(out.dtype, FloatType(t));
  out.dims = {t.n_values()};
  out.data = t.data;
  return Add(std::move(out));
}

const model::Tensor* Weights::Vector(const std::string& name, const std::vector<float>& values) {
  model::Tensor out;
  out.name = name;
  out.dims = {static_cast<int64_t>(values.size())};
  out.data = Keep(values.data(), values.size() * sizeof(float));
  return Add(std::move(out));
}

}  // namespace slm::importer
