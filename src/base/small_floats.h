// Floats of 4 and 8 bits as numbers: the codes and scales of FP4 weights.
//
// Source: OCP Microscaling Formats 1.0 (E2M1, E8M0) and OCP FP8 (E4M3).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace slm {

// code & 15: a sign in bit 3, then 0, 0.5, 1, 1.5, 2, 3, 4, 6. Twice the value is a whole number.
inline constexpr int kMostTwiceE2M1 = 12;
inline int TwiceE2M1(uint8_t code) {
  constexpr int kTwice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  return code & 8 ? -kTwice[code & 7] : kTwice[code & 7];
}
// The code of twice a value, one of TwiceE2M1.
inline uint8_t CodeOfTwiceE2M1(int twice) {
  uint8_t code = 0;
  while (code < 7 && TwiceE2M1(code) < std::abs(twice)) ++code;
  return static_cast<uint8_t>(code | (twice < 0 ? 8 : 0));
}
inline float E2M1Value(uint8_t code) {
  const float size = static_cast<float>(TwiceE2M1(code & 7)) / 2;
  return code & 8 ? -size : size;
}
// 2^(code - 127); 255 is NaN.
inline float E8M0Value(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, static_cast<int>(code) - 127);
}
// A sign, 4 and 3 bits; bias 7; no infinity, 0x7f and 0xff are NaN.
inline float E4M3Value(uint8_t code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float size =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -size : size;
}

}  // namespace slm
