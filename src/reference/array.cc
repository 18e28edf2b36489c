// See array.h.
#include "reference/array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/small_float.h"

namespace slm::reference {
namespace {

// Not by way of f32, which would round twice.
constexpr SmallFloat kHalf{5, 10, 15, 65504, SpecialCodes::kIeee}, kBrain{8, 7, 127, 0x1.fep127, SpecialCodes::kIeee};

const SmallFloat* Small(ElementType type) {
  switch (type) {
    case ElementType::kFloat8E4m3fn: return &kE4m3fn;
    case ElementType::kFloat8E4m3fnuz: return &kE4m3fnuz;
    case ElementType::kFloat8E5m2: return &kE5m2;
    case ElementType::kFloat8E5m2fnuz: return &kE5m2fnuz;
    case ElementType::kFloat4E2m1: return &kE2m1;
    case ElementType::kFloat6E2m3: return &kE2m3;
    case ElementType::kFloat6E3m2: return &kE3m2;
    default: return nullptr;
  }
}

// FLOAT8E8M0: a power of two, 2^(code - 127); 255 is NaN.
double ScaleValue(unsigned code) { return code == 255 ? std::nan("") : std::ldexp(1.0, static_cast<int>(code) - 127); }

double RoundScale(double x) {
  if (std::isnan(x) || x <= 0) return std::nan("");
  const double below = std::floor(std::log2(x)), exponent = x >= 1.5 * std::exp2(below) ? below + 1 : below;
  return std::ldexp(1.0, static_cast<int>(std::clamp(exponent, -127.0, 127.0)));
}

uint64_t Bits(std::span<const std::byte> data, int64_t index, int bits) {
  uint64_t v = 0;
  if (bits >= 8) {
    const size_t width = static_cast<size_t>(bits / 8);
    std::memcpy(&v, data.data() + static_cast<size_t>(index) * width, width);
    return v;
  }
  for (int b = 0; b < bits; ++b) {
    const uint64_t bit = static_cast<uint64_t>(index) * static_cast<uint64_t>(bits) + static_cast<uint64_t>(b);
    v |= (std::to_integer<uint64_t>(data[bit / 8]) >> (bit % 8) & 1u) << b;
  }
  return v;
}

double FloatOfBits(ElementType type, uint64_t v) {
  switch (type) {
    case ElementType::kFloat: return std::bit_cast<float>(static_cast<uint32_t>(v));
    case ElementType::kDouble: return std::bit_cast<double>(v);
    case ElementType::kFloat16: return HalfToFloat(static_cast<uint16_t>(v));
    case ElementType::kBfloat16: return BFloat16ToFloat(static_cast<uint16_t>(v));
    case ElementType::kFloat8E8m0: return ScaleValue(static_cast<unsigned>(v));
    default: return SmallFloatValue(*Small(type), static_cast<unsigned>(v));
  }
}

}  // namespace

int64_t Array::size() const { return static_cast<int64_t>(IsFloat(type) ? f.size() : IsString(type) ? s.size() : i.size()); }

double RoundTo(ElementType type, double x, Saturate saturate) {
  switch (type) {
    case ElementType::kDouble: return x;
    case ElementType::kFloat: return static_cast<float>(x);
    case ElementType::kFloat16: return RoundToSmallFloat(kHalf, x, Overflow::kSpecial);
    case ElementType::kBfloat16: return RoundToSmallFloat(kBrain, x, Overflow::kSpecial);
    case ElementType::kFloat8E8m0: return RoundScale(x);
    default: return RoundToSmallFloat(*Small(type), x, saturate == Saturate::kYes ? Overflow::kSaturate : Overflow::kSpecial);
  }
}

int64_t WrapTo(ElementType type, int64_t x) {
  if (IsBool(type)) return x != 0 ? 1 : 0;
  const int unused = 64 - onnx::Info(type).bits;
  const uint64_t high = static_cast<uint64_t>(x) << unused;
  return onnx::Info(type).kind == onnx::ElementKind::kSigned ? static_cast<int64_t>(high) >> unused : static_cast<int64_t>(high >> unused);
}

int64_t LowestOf(ElementType type) {
  return onnx::Info(type).kind == onnx::ElementKind::kSigned ? -(int64_t{1} << (onnx::Info(type).bits - 1)) : 0;
}

int64_t HighestOf(ElementType type) {
  const int bits = onnx::Info(type).bits - (onnx::Info(type).kind == onnx::ElementKind::kSigned ? 1 : 0);
  return (int64_t{1} << bits) - 1;
}

double Number(const Array& a, int64_t at) {
  const size_t k = static_cast<size_t>(at);
  if (IsFloat(a.type)) return a.f[k];
  return a.type == ElementType::kUint64 ? static_cast<double>(static_cast<uint64_t>(a.i[k])) : static_cast<double>(a.i[k]);
}

void Set(Array& a, int64_t at, double x) {
  const size_t k = static_cast<size_t>(at);
  if (IsFloat(a.type)) {
    a.f[k] = RoundTo(a.type, x);
    return;
  }
  const double whole = std::trunc(x);
  int64_t v = 0;  // what does not fit 64 bits has no meaning in ONNX
  if (whole >= -0x1p63 && whole < 0x1p63) v = static_cast<int64_t>(whole);
  else if (whole >= 0x1p63 && whole < 0x1p64) v = static_cast<int64_t>(static_cast<uint64_t>(whole));
  a.i[k] = IsBool(a.type) ? (x != 0 ? 1 : 0) : WrapTo(a.type, v);
}

bool Less64(ElementType type, int64_t a, int64_t b) {
  return type == ElementType::kUint64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

bool Less(const Array& array, int64_t a, int64_t b) {
  if (IsInteger(array.type)) return Less64(array.type, array.i[static_cast<size_t>(a)], array.i[static_cast<size_t>(b)]);
  return Number(array, a) < Number(array, b);
}

Error Refuse(std::string what) {
  return Error(Code::kUnsupported, "unsupported: " + std::move(what), "compare this case with another runtime");
}
Error Wrong(std::string what) {
  return Error(Code::kCorrupt, std::move(what), "the node is not what its operator allows: export the model again");
}

Result<int64_t> Count(const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims)
    if (d < 0) return Wrong("shape " + onnx::ShapeText(dims) + " is negative");
  for (const int64_t d : dims) {  // of an empty one too: products of some of its dimensions are counted elsewhere
    if (d == 0) continue;
    if (n > kMaxValues / d)
      return Error(Code::kLimit, fmt::format("a value of shape {}: at most {} values are computed", onnx::ShapeText(dims), kMaxValues),
                   "test the operator with smaller tensors");
    n *= d;
  }
  return std::find(dims.begin(), dims.end(), 0) == dims.end() ? n : 0;
}

Status CheckSteps(int64_t a, int64_t b) {
  if (b == 0 || a <= kMaxSteps / b) return Ok();
  return Error(Code::kLimit, fmt::format("a product of {} by {} steps: at most {} are done", a, b, kMaxSteps),
               "test the operator with smaller tensors");
}

Result<Array> Zeros(ElementType type, Dims dims) {
  SLM_ASSIGN_OR_RETURN(const int64_t n, Count(dims));
  Array a{type, std::move(dims), {}, {}, {}};
  const size_t size = static_cast<size_t>(n);
  if (IsFloat(type)) a.f.resize(size);
  else if (IsString(type)) a.s.resize(size);
  else a.i.resize(size);
  return a;
}

Array Scalar(ElementType type, double x) {
  Array a{type, {}, {}, {}, {}};
  if (IsFloat(type)) a.f.resize(1);
  else a.i.resize(1);
  Set(a, 0, x);
  return a;
}

Array IntVector(std::vector<int64_t> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return {ElementType::kInt64, {n}, {}, std::move(values), {}};
}

void CopyValue(const Array& a, int64_t from, Array& out, int64_t to) {
  const size_t source = static_cast<size_t>(from), target = static_cast<size_t>(to);
  if (IsFloat(a.type)) out.f[target] = a.f[source];
  else if (IsString(a.type)) out.s[target] = a.s[source];
  else out.i[target] = a.i[source];
}

Dims Strides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= dims[axis];
  }
  return strides;
}

Dims BroadcastStrides(const Dims& dims, const Dims& to) {
  Dims strides(to.size());
  const Dims own = Strides(dims);
  for (size_t k = 0; k < dims.size(); ++k) strides[to.size() - dims.size() + k] = dims[k] == 1 ? 0 : own[k];
  return strides;
}

Result<Dims> BroadcastShape(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t k = 0; k < out.size(); ++k) {  // from the last dimension
    const int64_t x = k < a.size() ? a[a.size() - 1 - k] : 1, y = k < b.size() ? b[b.size() - 1 - k] : 1;
    if (x != y && x != 1 && y != 1) return Wrong("shapes " + onnx::ShapeText(a) + " and " + onnx::ShapeText(b) + " do not broadcast");
    out[out.size() - 1 - k] = x == 1 ? y : x;
  }
  return out;
}

Result<Array> BroadcastTo(const Array& a, const Dims& dims) {
  SLM_ASSIGN_OR_RETURN(const Dims joined, BroadcastShape(a.dims, dims));
  if (joined != dims) return Wrong("shape " + onnx::ShapeText(a.dims) + " does not broadcast to " + onnx::ShapeText(dims));
  SLM_ASSIGN_OR_RETURN(Array out, Zeros(a.type, dims));
  Walk(dims, {BroadcastStrides(a.dims, dims)}, [&](int64_t at, const Dims& from) { CopyValue(a, from[0], out, at); });
  return out;
}

Result<int64_t> Axis(int64_t axis, size_t rank) {
  const int64_t r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return Wrong(fmt::format("axis {} of {} dimensions", axis, rank));
  return axis < 0 ? axis + r : axis;
}

Lanes LanesOf(const Dims& dims, int64_t axis) {
  Lanes l;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (static_cast<int64_t>(k) < axis) l.outer *= dims[k];
    else if (static_cast<int64_t>(k) == axis) l.n = dims[k];
    else l.inner *= dims[k];
  }
  return l;
}

Result<Array> FromTensor(const onnx::Tensor& t) {
  if (onnx::Info(t.type).kind == onnx::ElementKind::kComplex) return Refuse("type " + std::string(onnx::Info(t.type).name));
  SLM_ASSIGN_OR_RETURN(Array a, Zeros(t.type, t.dims));
  if (IsString(t.type)) {
    a.s = t.strings;
    return a;
  }
  for (int64_t k = 0; k < a.size(); ++k) {
    const uint64_t bits = Bits(t.data, k, onnx::Info(t.type).bits);
    if (IsFloat(t.type)) a.f[static_cast<size_t>(k)] = FloatOfBits(t.type, bits);
    else a.i[static_cast<size_t>(k)] = WrapTo(t.type, static_cast<int64_t>(bits));
  }
  return a;
}

}  // namespace slm::reference
