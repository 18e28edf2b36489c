// Cast, CastLike, BitCast. Rules for the types of 8 bits and less: ONNX's description of Cast.
#include <bit>
#include <charconv>
#include <cmath>

#include "base/float16.h"
#include "reference/call.h"

namespace slm::reference {
namespace {

// FLOAT8E8M0 holds powers of two only; "up" never makes a scale too small.
double RoundScale(double x, const std::string& mode, Saturate saturate) {
  if (std::isnan(x)) return x;
  x = std::abs(x);
  double exponent = std::log2(x);
  if (mode == "up") exponent = std::ceil(exponent);
  else if (mode == "down") exponent = std::floor(exponent);
  else exponent = x >= 1.5 * std::exp2(std::floor(exponent)) ? std::floor(exponent) + 1 : std::floor(exponent);
  if (exponent > 127) return saturate == Saturate::kYes ? 0x1p127 : std::nan("");
  return std::exp2(std::max(exponent, -127.0));
}

Result<Array> ParseStrings(const Array& a, Array out) {
  for (int64_t k = 0; k < a.size(); ++k) {
    std::string_view text = a.s[static_cast<size_t>(k)];
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return Wrong("a string that is not a number");
    Set(out, k, value);
  }
  return out;
}

uint64_t BitsOf(const Array& a, size_t k) {
  switch (a.type) {
    case ElementType::kFloat: return std::bit_cast<uint32_t>(static_cast<float>(a.f[k]));
    case ElementType::kDouble: return std::bit_cast<uint64_t>(a.f[k]);
    case ElementType::kFloat16: return FloatToHalf(static_cast<float>(a.f[k]));
    case ElementType::kBfloat16: return FloatToBFloat16(static_cast<float>(a.f[k]));
    default: return static_cast<uint64_t>(a.i[k]);
  }
}

}  // namespace

Result<Array> CastTo(const Array& a, ElementType type, Saturate saturate, const std::string& round_mode) {
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, a.dims));
  if (IsString(a.type)) return IsString(type) ? Result<Array>(a) : ParseStrings(a, std::move(y));
  if (IsString(type)) return Refuse("a cast to STRING");
  for (int64_t k = 0; k < a.size(); ++k) {
    const size_t at = static_cast<size_t>(k);
    if (!IsFloat(a.type) && !IsFloat(type)) y.i[at] = WrapTo(type, a.i[at]);
    else if (type == ElementType::kFloat8E8m0) y.f[at] = RoundScale(Number(a, k), round_mode, saturate);
    else if (IsFloat(type)) y.f[at] = RoundTo(type, Number(a, k), saturate);
    else Set(y, k, a.f[at]);
  }
  return y;
}

Result<Arrays> Cast(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const ElementType to, c.Type("to", ElementType::kUndefined));
  if (to == ElementType::kUndefined) return Wrong("attribute 'to' is missing");
  SLM_ASSIGN_OR_RETURN(Array y, CastTo(*x, to, c.Int("saturate", 1) != 0 ? Saturate::kYes : Saturate::kNo, c.Text("round_mode", "up")));
  return One(std::move(y));
}

Result<Arrays> CastLike(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0));
  SLM_ASSIGN_OR_RETURN(const Array* like, c.In(1));
  SLM_ASSIGN_OR_RETURN(Array y,
                       CastTo(*x, like->type, c.Int("saturate", 1) != 0 ? Saturate::kYes : Saturate::kNo, c.Text("round_mode", "up")));
  return One(std::move(y));
}

Result<Arrays> BitCast(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Array* x, c.In(0, Accept::kOrdered));
  SLM_ASSIGN_OR_RETURN(const ElementType to, c.Type("to", ElementType::kUndefined));
  const int bits = IsBool(x->type) ? 8 : onnx::Info(x->type).bits;
  if (bits < 8 || (bits == 8 && IsFloat(x->type)) || (onnx::Info(to).bits == 8 && IsFloat(to))) return Refuse("a type of 8 bits or less");
  if (IsString(to) || IsBool(to) || onnx::Info(to).bits != bits) return Wrong("types of different widths");
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(to, x->dims));
  for (size_t k = 0; k < static_cast<size_t>(y.size()); ++k) {
    const uint64_t v = BitsOf(*x, k);
    switch (to) {
      case ElementType::kFloat: y.f[k] = std::bit_cast<float>(static_cast<uint32_t>(v)); break;
      case ElementType::kDouble: y.f[k] = std::bit_cast<double>(v); break;
      case ElementType::kFloat16: y.f[k] = HalfToFloat(static_cast<uint16_t>(v)); break;
      case ElementType::kBfloat16: y.f[k] = BFloat16ToFloat(static_cast<uint16_t>(v)); break;
      default: y.i[k] = WrapTo(to, static_cast<int64_t>(v));
    }
  }
  return One(std::move(y));
}

}  // namespace slm::reference
