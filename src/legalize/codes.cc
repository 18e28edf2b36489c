// Weights of a few bits in com.microsoft's operators as DequantizeLinear with scales in blocks, and the plain operator behind it. Formats:
// onnxruntime's docs/ContribOperators.md (codes in bytes, the first in the lowest bits; without zero points the middle code is zero),
// ONNX's DequantizeLinear (operator set 21), whose 4-bit types are stored the same way.
#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

constexpr int64_t kMostCodes = int64_t{1} << 33, kMostTableBytes = int64_t{1} << 31, kMostBlock = 65536;

// Rows of codes, those of a row in bytes of their own.
struct CodeRows {
  const onnx::Tensor* bytes = nullptr;
  int64_t row_bytes = 0, bits = 4;
  unsigned At(int64_t row, int64_t k) const {
    const int64_t per_byte = 8 / bits;
    const auto byte = std::to_integer<unsigned>(bytes->data[static_cast<size_t>(row * row_bytes + k / per_byte)]);
    return byte >> (k % per_byte * bits) & ((1u << bits) - 1);
  }
};

class CodeWriter {
 public:
  CodeWriter(int64_t n, int64_t bits) : bits_(bits), bytes_(static_cast<size_t>((n * bits + 7) / 8)) {}
  void Set(int64_t k, unsigned code) { bytes_[static_cast<size_t>(k * bits_ / 8)] |= static_cast<std::byte>(code << (k * bits_ % 8)); }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  int64_t bits_;
  std::vector<std::byte> bytes_;
};

enum class Lie : uint8_t { kAsGiven, kTransposed };

// The codes [rows, width], as they lie or as [width, rows]. Without zero points as signed codes, whose zero is 0.
struct Dequantized {
  int64_t rows = 0, width = 0, block = 0, blocks = 0, bits = 4;
  CodeRows codes, zeros;  // zeros.bytes null: none given
  std::string scales;     // [rows, blocks] in some shape
  const onnx::Tensor* scale_tensor = nullptr;
};

std::string Dequantize(Builder& b, const Dequantized& d, Lie lie) {
  const bool flip = lie == Lie::kTransposed, is_signed = d.zeros.bytes == nullptr;
  const unsigned middle = is_signed ? 1u << (d.bits - 1) : 0;  // two's complement: the top bit turned
  const ElementType type =
      d.bits == 8 ? (is_signed ? ElementType::kInt8 : ElementType::kUint8) : (is_signed ? ElementType::kInt4 : ElementType::kUint4);
  const auto lay = [&](const CodeRows& from, int64_t width, unsigned turned) {
    CodeWriter out(d.rows * width, d.bits);
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t k = 0; k < width; ++k) out.Set(flip ? k * d.rows + r : r * width + k, from.At(r, k) ^ turned);
    return b.Stored(type, flip ? Dims{width, d.rows} : Dims{d.rows, width}, out.Take());
  };
  Names inputs{lay(d.codes, d.width, middle)};
  // Scales in the layout of the codes.
  const size_t size = d.scale_tensor->data.size() / static_cast<size_t>(d.rows * d.blocks);
  std::vector<std::byte> scales(d.scale_tensor->data.begin(), d.scale_tensor->data.end());
  if (flip)
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t k = 0; k < d.blocks; ++k)
        for (size_t i = 0; i < size; ++i)
          scales[static_cast<size_t>(k * d.rows + r) * size + i] = d.scale_tensor->data[static_cast<size_t>(r * d.blocks + k) * size + i];
  inputs.push_back(b.Stored(d.scale_tensor->type, flip ? Dims{d.blocks, d.rows} : Dims{d.rows, d.blocks}, std::move(scales)));
  if (!is_signed) inputs.push_back(lay(d.zeros, d.blocks, 0));
  b.piece().least_opset = 21;
  return b.Op("DequantizeLinear", std::move(inputs), {IntAttribute("axis", flip ? 0 : 1), IntAttribute("block_size", d.block)});
}

const onnx::Tensor* Fixed(const Site& s, size_t input) {
  const targets::Value* v = s.In(input);
  return v ? v->tensor : nullptr;
}

// Checks the sizes of codes, scales and zero points against each other.
bool Fits(const Site& s, Dequantized& d, size_t zeros_at) {
  if (d.bits != 4 && d.bits != 8) return false;
  if (d.rows < 1 || d.width < 1 || d.block < 1 || d.block > kMostBlock || d.rows > kMostCodes / d.width || !d.codes.bytes ||
      !d.scale_tensor)
    return false;
  d.blocks = (d.width + d.block - 1) / d.block;
  if (d.codes.bytes->type != ElementType::kUint8 || !IsFloating(d.scale_tensor->type)) return false;
  if (static_cast<int64_t>(d.codes.bytes->data.size()) != d.rows * d.codes.row_bytes || d.codes.row_bytes * 8 / d.bits < d.width)
    return false;
  if (d.scale_tensor->n_values() != d.rows * d.blocks) return false;
  d.codes.bits = d.zeros.bits = d.bits;
  if (!s.Given(zeros_at)) return true;
  d.zeros.bytes = Fixed(s, zeros_at);
  d.zeros.row_bytes = (d.blocks * d.bits + 7) / 8;
  return d.zeros.bytes && d.zeros.bytes->type == ElementType::kUint8 &&
         static_cast<int64_t>(d.zeros.bytes->data.size()) == d.rows * d.zeros.row_bytes;
}

std::optional<Dequantized> TableOf(const Site& s) {
  const onnx::Node& n = s.node();
  const onnx::Tensor* codes = Fixed(s, 0);
  if (!codes || codes->dims.size() != 2 || n.Int("gather_axis", 0) != 0) return std::nullopt;
  const int64_t axis = n.Int("quantize_axis", 1), bits = n.Int("bits", 4);
  if ((axis != 1 && axis != -1) || (bits != 4 && bits != 8)) return std::nullopt;
  Dequantized d{.rows = codes->dims[0], .block = n.Int("block_size", 128), .bits = bits};
  if (codes->dims[1] > kMostCodes || d.block < 1) return std::nullopt;
  d.width = codes->dims[1] * (8 / bits);
  d.codes.bytes = codes;
  d.codes.row_bytes = codes->dims[1];
  d.scale_tensor = Fixed(s, 2);
  if (!Fits(s, d, 3)) return std::nullopt;
  return d;
}

Piece LookUp(const Site& s, Builder& b, const Dequantized& d, const std::string& table) {
  const std::string& ids = s.node().inputs[1];
  b.To(0, "Gather", {table, ids}, {IntAttribute("axis", 0)});
  b.piece().between[ids] = {-d.rows, d.rows - 1};
  return b.Take();
}

}  // namespace

// Codes as [K, N]: what compilers take as the second operand of MatMul.
std::optional<Piece> MatMulNBitsAsDequantize(const Site& s) {
  const onnx::Node& n = s.node();
  Dequantized d{.rows = n.Int("N", 0), .width = n.Int("K", 0), .block = n.Int("block_size", 0), .bits = n.Int("bits", 4)};
  d.codes.bytes = Fixed(s, 1);
  d.scale_tensor = Fixed(s, 2);
  if (s.Given(4) || n.Int("weight_prepacked", 0) != 0 || d.block < 1 || d.block > kMostBlock || d.width < 1 || d.width > kMostCodes)
    return std::nullopt;
  d.codes.row_bytes = (d.width + d.block - 1) / d.block * d.block * d.bits / 8;
  if (!Fits(s, d, 3) || d.scale_tensor->type != s.Type(0)) return std::nullopt;
  Builder b(s);
  const std::string w = Dequantize(b, d, Lie::kTransposed);
  if (!s.Given(5)) b.To(0, "MatMul", {n.inputs[0], w});
  else b.To(0, "Add", {b.Op("MatMul", {n.inputs[0], w}), n.inputs[5]});
  return b.Take();
}

std::optional<Piece> GatherBlockQuantizedAsDequantize(const Site& s) {
  const auto d = TableOf(s);
  if (!d) return std::nullopt;
  Builder b(s);
  return LookUp(s, b, *d, Dequantize(b, *d, Lie::kAsGiven));
}

// For targets that look rows up in float tables only: the values that the operator computes, 4 to 8 times the bytes.
std::optional<Piece> GatherBlockQuantizedAsFloat(const Site& s) {
  const auto d = TableOf(s);
  if (!d || d->rows > kMostTableBytes / d->width / 4 || d->scale_tensor->type == ElementType::kDouble) return std::nullopt;
  const auto scales = reference::FromTensor(*d->scale_tensor);
  if (!scales.ok()) return std::nullopt;
  const ElementType type = d->scale_tensor->type;
  const int64_t zero = int64_t{1} << (d->bits - 1);
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(onnx::StoredBytes(type, d->rows * d->width)));
  reference::Array row{.type = type, .dims = {d->width}, .f = std::vector<double>(static_cast<size_t>(d->width)), .i = {}, .s = {}};
  for (int64_t r = 0; r < d->rows; ++r) {
    for (int64_t k = 0; k < d->width; ++k) {
      const int64_t middle = d->zeros.bytes ? d->zeros.At(r, k / d->block) : zero;
      row.f[static_cast<size_t>(k)] = static_cast<double>(static_cast<int64_t>(d->codes.At(r, k)) - middle) *
                                      scales.value().f[static_cast<size_t>(r * d->blocks + k / d->block)];
    }
    const auto stored = Encode("", row);
    bytes.insert(bytes.end(), stored->bytes->begin(), stored->bytes->end());
  }
  Builder b(s);
  return LookUp(s, b, *d, b.Stored(type, {d->rows, d->width}, std::move(bytes)));
}

}  // namespace slm::legalize
