// Codes of the int8 cache, shared by the tiers so that all of them store the same bits: nothing here depends on the ISA except
// how fast it is compiled. Included by ISA files and ref.cc only; everything has internal linkage.
#pragma once
#include <stdint.h>

#include "kernels/attention_int8/contract.h"

namespace slm::kernels {
namespace {

// Largest magnitude of x[0, n); NaN when a value is not finite. Magnitudes compare like their bits.
inline float LargestMagnitude(const float* x, int n) {
  uint32_t most = 0;
  for (int i = 0; i < n; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  if (most >= 0x7f800000) return __builtin_nanf("");
  float magnitude;
  __builtin_memcpy(&magnitude, &most, 4);
  return magnitude;
}

// 1 / x where that is a number, else 0: every code of a tiny or a NaN scale is 0.
inline float Inverse(float x) { return x > 1e-37f ? 1.0f / x : 0.0f; }

// x rounded to nearest even for |x| < 2^22: adding 1.5 * 2^23 leaves the integer in the low bits.
inline int32_t Rounded(float x) {
  const float shifted = x + 0x1.8p23f;
  int32_t bits;
  __builtin_memcpy(&bits, &shifted, 4);
  return bits - 0x4b400000;
}
inline int32_t Code(float x, float inverse) {
  const int32_t c = Rounded(x * inverse);
  return c > 127 ? 127 : c < -127 ? -127 : c;
}
// The codes of x[0, n). A value that is not finite makes a code of no meaning: its scale is NaN.
inline void Codes(const float* x, int n, float inverse, int8_t* codes) {
  for (int i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(Code(x[i], inverse));
}

// x [D] to H x: butterflies over blocks of RotationSize values.
inline void Rotate(float* x, int dim) {
  const int n = RotationSize(dim);
  for (int h = 1; h < n; h *= 2) {
    for (int i = 0; i < dim; i += 2 * h) {
      for (int j = i; j < i + h; ++j) {
        const float a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
    }
  }
}

// `to_half`: f32 to f16, to nearest even; `to_float`: back. Codes use the scale as stored.
template <class ToHalf, class ToFloat>
inline void StoreKeyWith(const float* x, int dim, int64_t slot, uint8_t* head, ToHalf to_half, ToFloat to_float) {
  uint8_t* tile = head + slot / kTileSlots * KeyTileBytes(dim);
  const int s = static_cast<int>(slot % kTileSlots);
  float rotated[256];
  int8_t codes[256];
  __builtin_memcpy(rotated, x, static_cast<unsigned>(dim) * 4);
  Rotate(rotated, dim);
  for (int g = 0; g * kKeyGroup < dim; ++g) {
    const int d = g * kKeyGroup, n = dim - d < kKeyGroup ? dim - d : kKeyGroup;
    uint16_t half = to_half(LargestMagnitude(rotated + d, n) * (1.0f / 127));
    if ((half & 0x7c00) == 0x7c00) half = 0x7e00;  // past f16, too: NaN
    __builtin_memcpy(tile + (g * kTileSlots + s) * 2, &half, 2);
    Codes(rotated + d, n, Inverse(to_float(half)), codes + d);
  }
  uint8_t* to = tile + KeyScaleBytes(dim) + s * 4;
  for (int d = 0; d < dim; d += 4, to += kTileSlots * 4) {
    uint32_t four;
    __builtin_memcpy(&four, codes + d, 4);
    four ^= 0x80808080u;  // code + 128
    __builtin_memcpy(to, &four, 4);
  }
}

inline void StoreValueCodes(const float* x, int dim, int64_t slot, uint8_t* head) {
  uint8_t* tile = head + slot / kTileSlots * ValueTileBytes(dim);
  const int s = static_cast<int>(slot % kTileSlots);
  const float scale = LargestMagnitude(x, dim) * (1.0f / 127);
  __builtin_memcpy(tile + s * 4, &scale, 4);
  int8_t codes[256];
  Codes(x, dim, Inverse(scale), codes);
  uint8_t* to = tile + kValueScaleBytes + int64_t{s / 4} * dim * 4 + s % 4;
  for (int d = 0; d < dim; ++d) to[d * 4] = static_cast<uint8_t>(codes[d]);
}

// H q / n as 16-bit codes; returns scale (NaN when q is not finite) and sums[g] = -128 * (sum of the group's codes), which
// takes the keys' offset of 128 off again.
inline float QueryCodes(const float* query, int dim, int16_t* codes, int32_t* sums) {
  float q[256];
  __builtin_memcpy(q, query, static_cast<unsigned>(dim) * 4);
  Rotate(q, dim);
  const float most = LargestMagnitude(q, dim), inverse = Inverse(most * (1.0f / kQuerySteps));
  for (int g = 0; g * kKeyGroup < dim; ++g) {
    const int end = dim < (g + 1) * kKeyGroup ? dim : (g + 1) * kKeyGroup;
    int32_t sum = 0;
    for (int d = g * kKeyGroup; d < end; ++d) {
      int32_t c = Rounded(q[d] * inverse);
      c = c > 32512 ? 32512 : c < -32512 ? -32512 : c;
      codes[d] = static_cast<int16_t>(c);
      sum += c;
    }
    sums[g] = -128 * sum;
  }
  return most * (1.0f / kQuerySteps) / static_cast<float>(RotationSize(dim));
}

// A weight as a code of 15 bits.
inline int32_t WeightCode(float w, float inverse) {
  const int32_t c = Rounded(w * inverse);
  return c > 32767 ? 32767 : c < 0 ? 0 : c;
}

// The tiles that a decode item reads: from tile `first`, `count` of them; slots [begin, end) counted from the first one's start.
struct TileRange {
  int first, count, begin, end;
};
inline TileRange TilesOf(const DecodeItem& it) {
  const int first = it.key / kTileSlots;
  return {first, (it.key_end - 1) / kTileSlots - first + 1, it.key - first * kTileSlots, it.key_end - first * kTileSlots};
}

}  // namespace
}  // namespace slm::kernels
