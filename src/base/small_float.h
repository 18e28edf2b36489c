// Floating-point numbers of 4 to 8 bits (OCP's float8, float6 and float4, and the "fnuz" forms), one description each.
//
// Values go through double, which holds every one of them exactly. Formats: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling
// Formats 1.0, and ONNX's docs for the fnuz forms (no infinity, no negative zero, the code of negative zero is NaN).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace slm {

enum class SpecialCodes : uint8_t {
  kNone,       // every code is a number
  kNanAtTop,   // all ones is NaN, no infinity (E4M3FN)
  kIeee,       // infinity and NaN have the highest exponent (E5M2)
  kNanAtZero,  // the code of -0 is NaN (fnuz)
};

struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  double largest;
  SpecialCodes special;
};

inline constexpr SmallFloat kE4m3fn{4, 3, 7, 448, SpecialCodes::kNanAtTop};
inline constexpr SmallFloat kE4m3fnuz{4, 3, 8, 240, SpecialCodes::kNanAtZero};
inline constexpr SmallFloat kE5m2{5, 2, 15, 57344, SpecialCodes::kIeee};
inline constexpr SmallFloat kE5m2fnuz{5, 2, 16, 57344, SpecialCodes::kNanAtZero};
inline constexpr SmallFloat kE2m1{2, 1, 1, 6, SpecialCodes::kNone};
inline constexpr SmallFloat kE2m3{2, 3, 1, 7.5, SpecialCodes::kNone};
inline constexpr SmallFloat kE3m2{3, 2, 3, 28, SpecialCodes::kNone};

inline double SmallFloatValue(const SmallFloat& f, unsigned code) {
  const unsigned sign = code >> (f.exponent_bits + f.mantissa_bits) & 1u;
  const unsigned exponent = code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1), mantissa = code & ((1u << f.mantissa_bits) - 1);
  const unsigned top = (1u << f.exponent_bits) - 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (f.special == SpecialCodes::kNanAtZero && sign != 0 && exponent == 0 && mantissa == 0) return kNan;
  if (f.special == SpecialCodes::kNanAtTop && exponent == top && mantissa == (1u << f.mantissa_bits) - 1) return kNan;
  double value = std::ldexp(mantissa + (exponent > 0 ? std::ldexp(1.0, f.mantissa_bits) : 0.0),
                            static_cast<int>(std::max(exponent, 1u)) - f.bias - f.mantissa_bits);
  if (f.special == SpecialCodes::kIeee && exponent == top) value = mantissa != 0 ? kNan : std::numeric_limits<double>::infinity();
  return sign != 0 ? -value : value;
}

enum class Overflow : uint8_t { kSaturate, kSpecial };  // kSpecial: to infinity, or NaN where there is none

// The nearest value of the format, ties to the even code. A format without NaN takes NaN as -0, as ONNX's reference does.
inline double RoundToSmallFloat(const SmallFloat& f, double x, Overflow overflow) {
  if (std::isnan(x)) return f.special == SpecialCodes::kNone ? -0.0 : x;
  const double beyond = f.special == SpecialCodes::kIeee   ? std::copysign(std::numeric_limits<double>::infinity(), x)
                        : f.special == SpecialCodes::kNone ? std::copysign(f.largest, x)
                                                           : std::numeric_limits<double>::quiet_NaN();
  const double limit = overflow == Overflow::kSaturate ? std::copysign(f.largest, x) : beyond;
  if (std::isinf(x)) return limit;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| = [0.5, 1) * 2^exponent
  const double step = std::ldexp(1.0, std::max(exponent - 1, 1 - f.bias) - f.mantissa_bits);
  const double rounded = std::nearbyint(x / step) * step;
  if (std::abs(rounded) > f.largest) return limit;
  return rounded == 0 && f.special == SpecialCodes::kNanAtZero ? 0.0 : rounded;
}

}  // namespace slm
