// Codes of a few bits in bytes: com.microsoft's MatMulNBits, MatMulBnb4 and GatherBlockQuantized. Formats: ONNX Runtime's
// docs/ContribOperators.md.
#include "reference/call.h"

namespace slm::reference {
namespace {

// Code `at` of a row of bytes, the first in the lowest bits.
int64_t CodeAt(const Array& bytes, int64_t row_begin, int64_t at, int64_t bits) {
  const int64_t per_byte = 8 / bits;
  return bytes.i[static_cast<size_t>(row_begin + at / per_byte)] >> (at % per_byte * bits) & ((int64_t{1} << bits) - 1);
}

Result<int64_t> BitsOf(const Call& c) {
  const int64_t bits = c.Int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8) return Refuse(fmt::format("codes of {} bits", bits));
  return bits;
}

struct Matrix {  // [N, K], of MatMulNBits
  int64_t n, k, bits, block, blocks;
  const Array *codes, *scales, *zeros;
};

Result<Matrix> MatrixOf(const Call& c) {
  Matrix m{c.Int("N", 0), c.Int("K", 0), 4, c.Int("block_size", 0), 0, nullptr, nullptr, c.Optional(3)};
  SLM_ASSIGN_OR_RETURN(m.bits, BitsOf(c));
  SLM_ASSIGN_OR_RETURN(m.codes, c.In(1, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(m.scales, c.In(2, Accept::kFloat));
  if (c.Int("weight_prepacked", 0) != 0) return Refuse("prepacked weights");
  if (const Array* g = c.Optional(4); g && g->size() > 0) return Refuse("an order of groups (g_idx)");
  if (m.n < 1 || m.k < 1 || m.n > kMaxValues || m.k > kMaxValues || m.block < 8 || m.block > 65536 || (m.block & (m.block - 1)) != 0)
    return Wrong("N, K or block_size");
  m.blocks = (m.k + m.block - 1) / m.block;
  SLM_ASSIGN_OR_RETURN(const int64_t codes, Count({m.n, m.blocks, m.block * m.bits / 8}));
  if (m.codes->type != ElementType::kUint8 || m.codes->size() != codes) return Wrong("as many bytes of codes as N, K and block_size need");
  if (m.scales->size() != m.n * m.blocks) return Wrong("a scale for each block is needed");
  if (m.zeros) {
    const int64_t packed = m.n * ((m.blocks * m.bits + 7) / 8), want = IsFloat(m.zeros->type) ? m.n * m.blocks : packed;
    if ((m.zeros->type != ElementType::kUint8 && !IsFloat(m.zeros->type)) || m.zeros->size() != want)
      return Wrong("zero points that do not fit the blocks");
  }
  return m;
}

double ZeroOf(const Matrix& m, int64_t row, int64_t block) {
  if (!m.zeros) return static_cast<double>(int64_t{1} << (m.bits - 1));
  if (IsFloat(m.zeros->type)) return Number(*m.zeros, row * m.blocks + block);
  return static_cast<double>(CodeAt(*m.zeros, row * ((m.blocks * m.bits + 7) / 8), block, m.bits));
}

}  // namespace

// accuracy_level is a permission to be less exact, which this does not use.
Result<Arrays> MatMulNBits(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Matrix m, MatrixOf(c));
  const Array* bias = c.Optional(5);
  if (a->dims.empty() || a->dims.back() != m.k) return Wrong("the last dimension of A is not K");
  if (bias && (bias->dims != Dims{m.n} || bias->type != a->type)) return Wrong("the bias is not [N]");
  SLM_ASSIGN_OR_RETURN(Array w, Zeros(ElementType::kDouble, {m.k, m.n}));
  SLM_RETURN_IF_ERROR(c.Count(m.k, m.n));
  for (int64_t row = 0; row < m.n; ++row)
    for (int64_t k = 0; k < m.k; ++k) {
      const int64_t block = k / m.block, begin = (row * m.blocks + block) * (m.block * m.bits / 8);
      const double code = static_cast<double>(CodeAt(*m.codes, begin, k % m.block, m.bits));
      w.f[static_cast<size_t>(k * m.n + row)] = (code - ZeroOf(m, row, block)) * Number(*m.scales, row * m.blocks + block);
    }
  SLM_ASSIGN_OR_RETURN(Array y, MatMulArrays(c, *a, w, bias ? ElementType::kDouble : a->type));
  if (!bias) return One(std::move(y));
  SLM_ASSIGN_OR_RETURN(Array sum, Zeros(a->type, y.dims));
  for (int64_t k = 0; k < y.size(); ++k) Set(sum, k, y.f[static_cast<size_t>(k)] + Number(*bias, k % m.n));
  return One(std::move(sum));
}

// B [N, K] as codes of 4 bits in a row, the first in the high half of its byte; each names a value between -1 and 1 (QLoRA's NF4, or a
// float of 4 bits scaled to that), times the largest magnitude of its block.
Result<Arrays> MatMulBnb4(const Call& c) {
  static constexpr double kFp4[] = {0, 0.0625 / 12, 8.0 / 12, 12.0 / 12, 4.0 / 12, 6.0 / 12, 2.0 / 12, 3.0 / 12};
  static constexpr double kNf4[] = {-1.0,
                                    -0.6961928009986877,
                                    -0.5250730514526367,
                                    -0.39491748809814453,
                                    -0.28444138169288635,
                                    -0.18477343022823334,
                                    -0.09105003625154495,
                                    0.0,
                                    0.07958029955625534,
                                    0.16093020141124725,
                                    0.24611230194568634,
                                    0.33791524171829224,
                                    0.44070982933044434,
                                    0.5626170039176941,
                                    0.7229568362236023,
                                    1.0};
  SLM_ASSIGN_OR_RETURN(const Array* a, c.In(0, Accept::kFloat));
  SLM_ASSIGN_OR_RETURN(const Array* codes, c.In(1, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* largest, c.In(2, Accept::kFloat));
  const int64_t n = c.Int("N", 0), k = c.Int("K", 0), block = c.Int("block_size", 0), kind = c.Int("quant_type", 1);
  if (n < 1 || k < 1 || n > kMaxValues || k > kMaxValues || block < 16 || block > kMaxValues || kind < 0 || kind > 1)
    return Wrong("N, K, block_size or quant_type");
  if (c.Int("transB", 1) == 0) return Refuse("transB of 0");
  SLM_ASSIGN_OR_RETURN(const int64_t total, Count({n, k}));
  if (codes->type != ElementType::kUint8 || codes->size() != (total + 1) / 2 || largest->size() != (total + block - 1) / block)
    return Wrong("as many bytes of codes, and scales, as N, K and block_size need");
  if (a->dims.empty() || a->dims.back() != k) return Wrong("the last dimension of A is not K");
  SLM_ASSIGN_OR_RETURN(Array w, Zeros(ElementType::kDouble, {k, n}));
  for (int64_t i = 0; i < total; ++i) {
    const int64_t code = codes->i[static_cast<size_t>(i / 2)] >> (i % 2 == 0 ? 4 : 0) & 15;
    const double value = kind == 1 ? kNf4[code] : code < 8 ? kFp4[code] : -kFp4[code - 8];
    w.f[static_cast<size_t>(i % k * n + i / k)] = value * Number(*largest, i / block);
  }
  SLM_ASSIGN_OR_RETURN(Array y, MatMulArrays(c, *a, w, a->type));
  return One(std::move(y));
}

Result<Arrays> GatherBlockQuantized(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* data, c.In(0, Accept::kInteger));
  SLM_ASSIGN_OR_RETURN(const Array* indices, c.In(1, Accept::kIndex));
  SLM_ASSIGN_OR_RETURN(const Array* scales, c.In(2, Accept::kFloat));
  const Array* zeros = c.Optional(3);
  const bool bytes = data->type == ElementType::kUint8;
  SLM_ASSIGN_OR_RETURN(const int64_t bits, BitsOf(c));
  if (!bytes && onnx::Info(data->type).bits != 4) return Refuse("codes of type " + std::string(onnx::Info(data->type).name));
  const int64_t per_byte = bytes ? 8 / bits : 1, block = c.Int("block_size", 128);
  const size_t rank = data->dims.size();
  if (rank < 1 || block < 16) return Wrong("a scalar, or blocks of less than 16");
  SLM_ASSIGN_OR_RETURN(const int64_t quantize_axis, Axis(c.Int("quantize_axis", 1), rank));
  SLM_ASSIGN_OR_RETURN(const int64_t gather_axis, Axis(c.Int("gather_axis", 0), rank));
  if (gather_axis != 0 || quantize_axis + 1 != static_cast<int64_t>(rank))
    return Refuse("another gather axis than the first or quantize axis than the last");
  const int64_t width = data->dims.back() * per_byte, blocks = width / block + (width % block != 0);
  Dims rows(data->dims.begin(), data->dims.end() - 1), want = rows;
  want.push_back(blocks);
  if (scales->dims != want) return Wrong("a scale for each block is needed");
  const int64_t zero_width = bytes ? (blocks + per_byte - 1) / per_byte : blocks;
  want.back() = zero_width;
  if (zeros && (zeros->type != data->type || zeros->dims != want)) return Wrong("zero points that do not fit the blocks");
  // The table dequantized, then an ordinary Gather.
  Dims dims = data->dims;
  dims.back() = width;
  SLM_ASSIGN_OR_RETURN(Array table, Zeros(scales->type, dims));
  for (int64_t k = 0; k < table.size(); ++k) {
    const int64_t row = k / width, column = k % width, group = column / block;
    const auto code = [&](const Array& a, int64_t line, int64_t at) {
      return bytes ? CodeAt(a, row * line, at, bits) : a.i[static_cast<size_t>(row * line + at)];
    };
    const int64_t zero = zeros ? code(*zeros, zero_width, group) : bytes ? int64_t{1} << (bits - 1) : 0;
    Set(table, k, static_cast<double>(code(*data, data->dims.back(), column) - zero) * Number(*scales, row * blocks + group));
  }
  const onnx::Node plain;
  return Gather(Call(plain, c.opset(), {&table, indices}));
}

}  // namespace slm::reference
