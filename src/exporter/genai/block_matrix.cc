// Block-quantized rows of a file as codes, scales and zero points; see initializers.h.
#include <algorithm>
#include <bit>

#include "exporter/genai/initializers.h"
#include "model/grouped/grouped.h"
#include "model/grouped/pack.h"

namespace slm::exporter {
namespace {
using graph::Constant;
using graph::ConstantPart;

// Codes of 4 bits hold -8 to 7 (zero point 8) or 0 to 15 (types with a minimum); what is wider takes 8 bits around 128.
struct CodeRange {
  int bits = 8, zero = 128;
};
CodeRange RangeOf(DType t) {
  switch (t) {
    case DType::kQ4_0:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ3_K: return {4, 8};
    case DType::kQ4_1:
    case DType::kQ2_K:
    case DType::kQ4_K: return {4, 0};
    default: return {8, 128};
  }
}

int64_t BlockOf(DType t) {
  const model::BlockForm form = model::FormOf(t);
  return form.group > 0 ? form.group : static_cast<int64_t>(Info(t).block);
}

void Put(BlockMatrix* m, int64_t row, int64_t column, int code) {
  const int64_t at = row * m->k + column;
  if (m->bits == 8) m->codes[static_cast<size_t>(at)] = static_cast<uint8_t>(code);
  else m->codes[static_cast<size_t>(at / 2)] |= static_cast<uint8_t>(code << (4 * (at % 2)));
}

// value = scale * q + min for the codes of the block that begins with `column`.
void PutBlock(BlockMatrix* m, int64_t row, int64_t column, const int8_t* q, float scale, float min, int zero) {
  const size_t at = static_cast<size_t>(row * (m->k / m->block) + column / m->block);
  const int middle = 1 << (m->bits - 1);
  m->scales[at] = scale;
  if (!m->offsets.empty()) m->offsets[at] = min + scale * static_cast<float>(middle - zero);
  for (int64_t i = 0; i < m->block; ++i) Put(m, row, column + i, q[i] + zero);
}

void ReadRow(DType t, const std::byte* data, BlockMatrix* m, int64_t row) {
  const DTypeInfo info = Info(t);
  const model::BlockForm form = model::FormOf(t);
  const int zero = RangeOf(t).zero;
  model::BlockCodes c;
  for (int64_t column = 0; column < m->k; column += info.block, data += info.block_bytes) {
    model::ReadBlock(t, data, c);
    for (int64_t b = 0; b * m->block < info.block; ++b) {
      const float scale = form.group > 0 ? c.d * static_cast<float>(c.scales[b]) : c.d;
      const float min = form.min == model::BlockMin::kOne    ? c.min
                        : form.min == model::BlockMin::kNone ? 0.0f
                                                             : -c.min * static_cast<float>(c.mins[b]);
      PutBlock(m, row, column + b * m->block, c.q + b * m->block, scale, min, zero);
    }
  }
}

BlockMatrix Sized(int bits, int64_t block, int64_t n, int64_t k) {
  BlockMatrix m{.bits = bits, .block = block, .n = n, .k = k, .codes = {}, .scales = {}, .zeros = {}, .offsets = {}};
  m.codes.resize(static_cast<size_t>(n * k * bits / 8));
  m.scales.resize(static_cast<size_t>(n * (k / block)));
  return m;
}

// Codes in groups (AWQ, GPTQ, compressed-tensors): the group becomes a power of two that divides it, the bits 4 or 8.
BlockMatrix FromGrouped(const model::GroupedMatrix& g, int64_t begin, int64_t end) {
  model::GroupedCodes c;
  c.bits = g.bits <= 4 ? 4 : 8;
  c.n = end - begin, c.k = g.k;
  c.group = std::min<int64_t>(int64_t{1} << std::countr_zero(static_cast<uint64_t>(std::min(g.group, g.k))), 256);
  std::vector<int16_t> zeros(static_cast<size_t>(c.n * g.n_groups));
  std::vector<float> scales(zeros.size());
  c.codes.resize(static_cast<size_t>(c.n * c.k));
  model::ReadGroupedCodes(g, begin, end, {c.codes.data(), zeros.data(), scales.data()});
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t column = 0; column < c.k; column += c.group) {
      const size_t from = static_cast<size_t>(row * g.n_groups + column / std::min(g.group, g.k));
      c.zeros.push_back(zeros[from]);
      c.scales.push_back(scales[from]);
    }
  model::MatMulNBitsTensors t = model::PackMatMulNBits(c);
  return {.bits = c.bits,
          .block = c.group,
          .n = c.n,
          .k = c.k,
          .codes = std::move(t.b),
          .scales = std::move(t.scales),
          .zeros = std::move(t.zero_points),
          .offsets = {}};
}

bool FitsBlocks(const model::GroupedMatrix& g) {
  const int64_t group = std::min(g.group, g.k), block = int64_t{1} << std::countr_zero(static_cast<uint64_t>(group));
  return g.group_of.empty() && block >= 16 && g.k % block == 0 && g.facts.lowest >= -255;
}

}  // namespace

Stored FormOf(const Constant& c) {
  if (c.parts.empty()) return Stored::kFloat;
  const model::Tensor& first = *c.parts[0].tensor;
  if (first.grouped) return c.parts.size() == 1 && FitsBlocks(*first.grouped) ? Stored::kBlocks : Stored::kFloat;
  for (const ConstantPart& p : c.parts)
    if (p.tensor->grouped || p.tensor->dtype != first.dtype) return Stored::kFloat;
  return first.foreign_type.empty() && Info(first.dtype).block > 1 ? Stored::kBlocks : Stored::kFloat;
}

bool HasOffsets(const Constant& c) {
  const model::Tensor& first = *c.parts[0].tensor;
  return !first.grouped && model::FormOf(first.dtype).min != model::BlockMin::kNone;
}

bool IsQuantized(const Constant& c) {
  return std::any_of(c.parts.begin(), c.parts.end(),
                     [](const ConstantPart& p) { return p.tensor->grouped || Info(p.tensor->dtype).block > 1; });
}

BlockMatrix ReadBlocks(const Constant& c) {
  const model::Tensor& first = *c.parts[0].tensor;
  if (first.grouped) return FromGrouped(*first.grouped, c.parts[0].row_begin, c.parts[0].row_end);
  int64_t n = 0;
  for (const ConstantPart& p : c.parts) n += p.row_end - p.row_begin;
  BlockMatrix m = Sized(RangeOf(first.dtype).bits, BlockOf(first.dtype), n, first.dims.back());
  if (HasOffsets(c)) m.offsets.resize(m.scales.size());
  const auto row_bytes = static_cast<int64_t>(RowBytes(first.dtype, static_cast<uint64_t>(m.k)));
  int64_t row = 0;
  for (const ConstantPart& p : c.parts)
    for (int64_t i = p.row_begin; i < p.row_end; ++i) ReadRow(first.dtype, p.tensor->data.data() + i * row_bytes, &m, row++);
  return m;
}

}  // namespace slm::exporter
