// Codes and values of every storage type: one function per block layout takes a block apart; its values are then computed in the
// operation order of the numpy reference of the `gguf` package, so that they are equal to the bit. Layouts: ggml-common.h
// (block_q4_0 … block_mxfp4).
//
// This file is compiled with -ffp-contract=off: a fused multiply-add would round once where the reference rounds twice.
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "model/byte_cursor.h"
#include "model/model.h"

namespace slm::model {
namespace {

using Byte = unsigned char;

float Half(const Byte* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return HalfToFloat(h);
}

uint32_t Word(const Byte* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

// 16 bytes of nibbles: value i in the low nibble of byte i, value 16 + i in the high one.
void Nibbles(const Byte* p, int zero, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<int8_t>((p[i] & 15) - zero);
    q[16 + i] = static_cast<int8_t>((p[i] >> 4) - zero);
  }
}

// The same with fifth bits, bit i for value i.
void FiveBits(const Byte* p, uint32_t high, int zero, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<int8_t>(((p[i] & 15) | ((high >> i) & 1) << 4) - static_cast<unsigned>(zero));
    q[16 + i] = static_cast<int8_t>(((p[i] >> 4) | ((high >> (i + 16)) & 1) << 4) - static_cast<unsigned>(zero));
  }
}

// The sixteen codes of a table, by nibble.
void Table(const Byte* p, const int8_t (&table)[16], int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = table[p[i] & 15];
    q[16 + i] = table[p[i] >> 4];
  }
}

// d | nibbles
void Q4_0(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  Nibbles(p + 2, 8, c.q);
}

// d | m | nibbles
void Q4_1(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  c.min = Half(p + 2);
  Nibbles(p + 4, 0, c.q);
}

// d | 32 fifth bits | nibbles
void Q5_0(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  FiveBits(p + 6, Word(p + 2), 16, c.q);
}

// d | m | 32 fifth bits | nibbles
void Q5_1(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  c.min = Half(p + 2);
  FiveBits(p + 8, Word(p + 4), 0, c.q);
}

// d | 32 signed bytes
void Q8_0(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  std::memcpy(c.q, p + 2, 32);
}

// 16 x (scale, min) nibbles | 64 bytes of 2-bit values | d | dmin. 32 bytes hold 128 values: plane j in bits 2j, 2j+1.
void Q2_K(const Byte* p, BlockCodes& c) {
  const Byte* q = p + 16;
  c.d = Half(p + 80);
  c.min = Half(p + 82);
  for (int g = 0; g < 16; ++g) {
    c.scales[g] = static_cast<int8_t>(p[g] & 15);
    c.mins[g] = p[g] >> 4;
    const Byte* bytes = q + 32 * (g / 8) + 16 * (g % 2);
    const int shift = 2 * (g % 8 / 2);
    for (int i = 0; i < 16; ++i) c.q[16 * g + i] = static_cast<int8_t>((bytes[i] >> shift) & 3);
  }
}

// 32 bytes of third bits (plane = bit) | 64 bytes of 2-bit values | 12 bytes of 16 six-bit scales | d.
void Q3_K(const Byte* p, BlockCodes& c) {
  const Byte *hmask = p, *q = p + 32, *s = p + 96;
  c.d = Half(p + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4, high = (s[8 + g % 4] >> (2 * (g / 4))) & 3;
    c.scales[g] = static_cast<int8_t>((low | high << 4) - 32);
    const int base = 16 * (g % 2), shift = 2 * (g % 8 / 2), bit = g / 2;
    for (int i = 0; i < 16; ++i)
      c.q[16 * g + i] = static_cast<int8_t>(((q[32 * (g / 8) + base + i] >> shift) & 3) - (((hmask[base + i] >> bit) & 1) ? 0 : 4));
  }
}

// The eight 6-bit (scale, min) pairs of Q4_K and Q5_K out of their 12 bytes.
void ScalesMins(const Byte* s, BlockCodes& c) {
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    const int min = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6) << 4;
    c.scales[g] = static_cast<int8_t>(scale);
    c.mins[g] = static_cast<uint8_t>(min);
  }
}

// d | dmin | 12 bytes of scales and mins | 128 bytes: 32 bytes hold two groups of 32, low nibbles first.
void Q4_K(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  c.min = Half(p + 2);
  ScalesMins(p + 4, c);
  for (int g = 0; g < 8; ++g) {
    const Byte* q = p + 16 + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int i = 0; i < 32; ++i) c.q[32 * g + i] = static_cast<int8_t>((q[i] >> shift) & 15);
  }
}

// As Q4_K with 32 bytes of fifth bits (group = bit) before the nibbles.
void Q5_K(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  c.min = Half(p + 2);
  ScalesMins(p + 4, c);
  const Byte* high = p + 16;
  for (int g = 0; g < 8; ++g) {
    const Byte* q = p + 48 + 32 * (g / 2);
    const int shift = 4 * (g % 2);
    for (int i = 0; i < 32; ++i) c.q[32 * g + i] = static_cast<int8_t>(((q[i] >> shift) & 15) | ((high[i] >> g) & 1) << 4);
  }
}

// 128 bytes of low nibbles | 64 bytes of two high bits | 16 signed scales | d. Each half of 128 values: 64 bytes of nibbles
// (low ones first), 32 bytes of high bits (plane j of 32 values in bits 2j, 2j+1).
void Q6_K(const Byte* p, BlockCodes& c) {
  c.d = Half(p + 208);
  std::memcpy(c.scales, p + 192, 16);
  for (int g = 0; g < 8; ++g) {  // groups of 32
    const int half = g / 4, plane = g % 4;
    const Byte *low = p + 64 * half + 32 * (plane % 2), *high = p + 128 + 32 * half;
    const int shift = 4 * (plane / 2), high_shift = 2 * plane;
    for (int i = 0; i < 32; ++i)
      c.q[32 * g + i] = static_cast<int8_t>((((low[i] >> shift) & 15) | ((high[i] >> high_shift) & 3) << 4) - 32);
  }
}

// The non-linear 4-bit code of the IQ4 types.
constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void IQ4_NL(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  Table(p + 2, kIq4, c.q);
}

// d | 8 x 2 high scale bits | 8 low scale nibbles | 128 bytes: 16 bytes hold one group of 32, low nibbles first.
void IQ4_XS(const Byte* p, BlockCodes& c) {
  c.d = Half(p);
  const unsigned high = p[2] | static_cast<unsigned>(p[3]) << 8;
  for (int g = 0; g < 8; ++g) {
    const int low = (p[4 + g / 2] >> (4 * (g % 2))) & 15;
    c.scales[g] = static_cast<int8_t>((low | static_cast<int>((high >> (2 * g)) & 3) << 4) - 32);
    Table(p + 8 + 16 * g, kIq4, c.q + 32 * g);
  }
}

// The e2m1 code of MXFP4, doubled; the scale is halved in turn (OCP Microscaling Formats v1.0, section 5).
constexpr int8_t kFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// e8m0 exponent | 16 bytes. Exponents 0 and 1 halve into f32 subnormals.
void MXFP4(const Byte* p, BlockCodes& c) {
  const uint32_t e = p[0];
  c.d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  Table(p + 1, kFp4, c.q);
}

// 48 bytes of five ternary digits | 4 bytes of four | d. A byte is a fraction of 256 in base 3: times a power of 3, without what runs
// over, it begins with the digit asked for. Digit n of 32 bytes (then 16, then 4) makes up a plane.
void TQ1_0(const Byte* p, BlockCodes& c) {
  constexpr unsigned kPowers[] = {1, 3, 9, 27, 81};
  int8_t* q = c.q;
  const auto planes = [&](const Byte* bytes, int n, int digits) {
    for (int d = 0; d < digits; ++d)
      for (int i = 0; i < n; ++i) *q++ = static_cast<int8_t>(static_cast<int>((bytes[i] * kPowers[d] & 255u) * 3 >> 8) - 1);
  };
  planes(p, 32, 5);
  planes(p + 32, 16, 5);
  planes(p + 48, 4, 4);
  c.d = Half(p + 52);
}

// 64 bytes of 2-bit values | d. 32 bytes hold 128 values: plane j in bits 2j, 2j+1.
void TQ2_0(const Byte* p, BlockCodes& c) {
  for (int i = 0; i < 256; ++i) c.q[i] = static_cast<int8_t>((p[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3) - 1);
  c.d = Half(p + 64);
}

struct BlockType {
  void (*read)(const Byte*, BlockCodes&) = nullptr;
  BlockForm form;
};
BlockType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return {Q4_0, {}};
    case DType::kQ4_1: return {Q4_1, {.group = 0, .min = BlockMin::kOne}};
    case DType::kQ5_0: return {Q5_0, {}};
    case DType::kQ5_1: return {Q5_1, {.group = 0, .min = BlockMin::kOne}};
    case DType::kQ8_0: return {Q8_0, {}};
    case DType::kQ2_K: return {Q2_K, {.group = 16, .min = BlockMin::kGroups}};
    case DType::kQ3_K: return {Q3_K, {.group = 16}};
    case DType::kQ4_K: return {Q4_K, {.group = 32, .min = BlockMin::kGroups}};
    case DType::kQ5_K: return {Q5_K, {.group = 32, .min = BlockMin::kGroups}};
    case DType::kQ6_K: return {Q6_K, {.group = 16}};
    case DType::kIQ4_NL: return {IQ4_NL, {}};
    case DType::kIQ4_XS: return {IQ4_XS, {.group = 32}};
    case DType::kMXFP4: return {MXFP4, {}};
    case DType::kTQ1_0: return {TQ1_0, {}};
    case DType::kTQ2_0: return {TQ2_0, {}};
    default: return {};
  }
}

void Blocks(DType dtype, const Byte* p, int64_t n, float* out) {
  const DTypeInfo info = Info(dtype);
  const BlockType type = TypeOf(dtype);
  SLM_ASSERT(type.read != nullptr);
  const int group = type.form.group > 0 ? type.form.group : static_cast<int>(info.block);
  BlockCodes c;
  for (int64_t i = 0; i < n; i += info.block, p += info.block_bytes) {
    type.read(p, c);
    const int8_t* q = c.q;
    for (int g = 0; g < static_cast<int>(info.block) / group; ++g, q += group, out += group) {
      const float scale = type.form.group > 0 ? c.d * static_cast<float>(c.scales[g]) : c.d;
      const float min = type.form.min == BlockMin::kGroups ? c.min * static_cast<float>(c.mins[g]) : c.min;
      for (int j = 0; j < group; ++j) out[j] = scale * static_cast<float>(q[j]);
      if (type.form.min == BlockMin::kOne)
        for (int j = 0; j < group; ++j) out[j] += min;
      if (type.form.min == BlockMin::kGroups)
        for (int j = 0; j < group; ++j) out[j] -= min;
    }
  }
}

// Plain numbers, whatever their alignment.
template <class T, class F>
void Numbers(const Byte* p, int64_t n, float* out, F convert) {
  for (int64_t i = 0; i < n; ++i) {
    T v;
    std::memcpy(&v, p + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    out[i] = convert(v);
  }
}

}  // namespace

BlockForm FormOf(DType dtype) { return TypeOf(dtype).form; }

void ReadBlock(DType dtype, const std::byte* block, BlockCodes& out) {
  const BlockType type = TypeOf(dtype);
  SLM_ASSERT(type.read != nullptr);
  type.read(reinterpret_cast<const Byte*>(block), out);
}

void Dequantize(DType dtype, std::span<const std::byte> data, int64_t begin, int64_t end, float* out) {
  SLM_ASSERT(dtype < DType::kCount && begin >= 0 && begin <= end);
  const DTypeInfo info = Info(dtype);
  SLM_ASSERT(begin % info.block == 0 && end % info.block == 0 && RowBytes(dtype, static_cast<uint64_t>(end)) <= data.size());
  const Byte* p = reinterpret_cast<const Byte*>(data.data()) + RowBytes(dtype, static_cast<uint64_t>(begin));
  const int64_t n = end - begin;
  const auto cast = [](auto v) { return static_cast<float>(v); };
  switch (dtype) {
    case DType::kF32: return n > 0 ? void(std::memcpy(out, p, static_cast<size_t>(n) * 4)) : void();
    case DType::kF16: return Numbers<uint16_t>(p, n, out, HalfToFloat);
    case DType::kBF16: return Numbers<uint16_t>(p, n, out, BFloat16ToFloat);
    case DType::kI8: return Numbers<int8_t>(p, n, out, cast);
    case DType::kI16: return Numbers<int16_t>(p, n, out, cast);
    case DType::kI32: return Numbers<int32_t>(p, n, out, cast);
    case DType::kI64: return Numbers<int64_t>(p, n, out, cast);
    case DType::kF64: return Numbers<double>(p, n, out, cast);
    default: return Blocks(dtype, p, n, out);
  }
}

std::vector<float> DequantizeAll(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.n_values()));
  if (t.grouped) ReadRows(t, 0, t.dims[0], out.data());
  else Dequantize(t.dtype, t.data, 0, t.n_values(), out.data());
  return out;
}

}  // namespace slm::model
