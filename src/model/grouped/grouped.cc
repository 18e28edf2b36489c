// See grouped.h.
#include "model/grouped/grouped.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "base/small_floats.h"
#include "model/byte_cursor.h"

namespace slm::model {
namespace {

// Where the nibble of row 8c + i lies in AWQ's word c.
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t Word(std::span<const std::byte> words, int64_t i) { return LoadAs<uint32_t>(words.data() + static_cast<size_t>(i) * 4); }

// Code `i` of a stream of b-bit codes whose words are `stride` words apart.
int StreamCode(std::span<const std::byte> words, int64_t first, int64_t stride, int64_t i, int bits) {
  const int64_t bit = i * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  uint32_t value = Word(words, first + word * stride) >> shift;
  if (shift + bits > 32) value |= Word(words, first + (word + 1) * stride) << (32 - shift);
  return static_cast<int>(value & ((1u << bits) - 1));
}

// Code `i` of words that hold whole codes only.
int WordCode(std::span<const std::byte> words, int64_t first, int64_t stride, int64_t i, int bits) {
  const int per_word = 32 / bits;
  return static_cast<int>(Word(words, first + i / per_word * stride) >> (i % per_word * bits) & ((1u << bits) - 1));
}

// Element `i` of a list of b-bit codes, lowest bits first; b divides 8. Signed ones are moved up to be unsigned.
int StridedCode(const GroupedMatrix& m, std::span<const std::byte> list, int64_t i) {
  const int64_t bit = i * m.bits;
  const int code = static_cast<int>(list[static_cast<size_t>(bit / 8)]) >> (bit % 8) & ((1 << m.bits) - 1);
  return m.strides.is_signed ? code ^ (1 << (m.bits - 1)) : code;
}

float Number(DType type, const std::byte* p) {
  if (type == DType::kF32) return LoadAs<float>(p);
  return type == DType::kF16 ? HalfToFloat(LoadAs<uint16_t>(p)) : BFloat16ToFloat(LoadAs<uint16_t>(p));
}

float OffsetAt(const GroupedMatrix& m, int64_t row, int64_t g) {
  return LoadAs<float>(m.offsets.data() + static_cast<size_t>(row * m.strides.offset_row + g * m.strides.offset_group) * 4);
}

float ScaleAt(const GroupedMatrix& m, int64_t row, int64_t g) {
  const bool transposed = m.layout == GroupedLayout::kAwq || m.layout == GroupedLayout::kGptq;
  int64_t i = m.one_scale ? 0 : transposed ? g * m.n + row : row * m.n_groups + g;
  if (m.layout == GroupedLayout::kStrided) i = row * m.strides.scale_row + g * m.strides.scale_group;
  if (m.layout == GroupedLayout::kFp4) {  // half of it: codes are twice the value
    const auto code = static_cast<uint8_t>(m.scales[static_cast<size_t>(i)]);
    return (m.scale_form == ScaleForm::kE8M0 ? E8M0Value(code) : E4M3Value(code) / m.global_scale) / 2;
  }
  const float scale = Number(m.scale_type, m.scales.data() + static_cast<size_t>(i) * Info(m.scale_type).block_bytes);
  return m.scale_form == ScaleForm::kInverse ? 1 / scale : scale;
}

int ZeroAt(const GroupedMatrix& m, int64_t row, int64_t g) {
  const int middle = 1 << (m.bits - 1);
  if (m.layout == GroupedLayout::kTernary) return 1;
  if (m.zeros.empty()) return middle;
  if (m.layout == GroupedLayout::kStrided) return StridedCode(m, m.zeros, row * m.strides.zero_row + g * m.strides.zero_group);
  if (m.byte_zeros) return middle + static_cast<int8_t>(m.zeros[static_cast<size_t>(m.one_scale ? 0 : row * m.n_groups + g)]);
  if (m.layout == GroupedLayout::kAwq) return static_cast<int>(Word(m.zeros, g * (m.n / 8) + row / 8) >> (4 * kAwqNibble[row % 8]) & 15);
  if (m.layout == GroupedLayout::kGptq)
    return (StreamCode(m.zeros, g * (m.n * m.bits / 32), 1, row, m.bits) + m.zero_offset) & ((1 << m.bits) - 1);  // 0 - 1 wraps round
  return WordCode(m.zeros, g, m.n_groups, row, m.bits);
}

int CodeAt(const GroupedMatrix& m, int64_t row, int64_t k) {
  switch (m.layout) {
    case GroupedLayout::kAwq: return static_cast<int>(Word(m.codes, k * (m.n / 8) + row / 8) >> (4 * kAwqNibble[row % 8]) & 15);
    case GroupedLayout::kGptq: return StreamCode(m.codes, row, m.n, k, m.bits);
    case GroupedLayout::kCompressed: {
      const int64_t per_word = 32 / m.bits;
      return WordCode(m.codes, row * ((m.k + per_word - 1) / per_word), 1, k, m.bits);
    }
    case GroupedLayout::kColumns: SLM_ASSERT(false); return 0;
    case GroupedLayout::kStrided: return StridedCode(m, m.codes, row * m.strides.code_row + k * m.strides.code_column);
    case GroupedLayout::kFp4:
      return 128 + TwiceE2M1(static_cast<uint8_t>(m.codes[static_cast<size_t>((row * m.k + k) / 2)] >> (k % 2 * 4) & std::byte{15}));
    case GroupedLayout::kTernary:
      return static_cast<int>(m.codes[static_cast<size_t>(row % (m.n / 4) * m.k + k)] >> (row / (m.n / 4) * 2) & std::byte{3});
    case GroupedLayout::kBytes: break;
  }
  return (1 << (m.bits - 1)) + static_cast<int8_t>(m.codes[static_cast<size_t>(row * m.k + k)]);
}

bool IsTransposed(const GroupedMatrix& m) {
  if (m.layout == GroupedLayout::kStrided) return m.strides.code_column > m.strides.code_row;
  return m.layout == GroupedLayout::kAwq || m.layout == GroupedLayout::kGptq;
}

// Calls f(row, column) for all of rows [begin, end), in the order in which the codes lie.
template <class F>
void ForCodes(const GroupedMatrix& m, int64_t begin, int64_t end, const F& f) {
  if (IsTransposed(m)) {
    for (int64_t k = 0; k < m.k; ++k)
      for (int64_t row = begin; row < end; ++row) f(row, k);
    return;
  }
  for (int64_t row = begin; row < end; ++row)
    for (int64_t k = 0; k < m.k; ++k) f(row, k);
}

// Whole words of GPTQ's columns, for codes that do not cross words.
void ReadColumnWords(const GroupedMatrix& m, int64_t begin, int64_t end, uint8_t* out) {
  const int64_t per_word = 32 / m.bits;
  const uint32_t mask = (1u << m.bits) - 1;
  for (int64_t k = 0; k < m.k; k += per_word)
    for (int64_t row = begin; row < end; ++row) {
      uint32_t word = Word(m.codes, k / per_word * m.n + row);
      for (int64_t i = 0; i < per_word; ++i, word >>= m.bits) out[(row - begin) * m.k + k + i] = static_cast<uint8_t>(word & mask);
    }
}

// Codes of rows whose columns follow each other, two in a byte: what MatMulNBits has.
bool HasNibbleRows(const GroupedMatrix& m) {
  const GroupedStrides& s = m.strides;
  return m.layout == GroupedLayout::kStrided && m.bits == 4 && s.code_column == 1 && s.code_row % 2 == 0 && m.k % 2 == 0 && !s.is_signed;
}

void ReadNibbleRows(const GroupedMatrix& m, int64_t begin, int64_t end, uint8_t* out) {
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* from = m.codes.data() + row * m.strides.code_row / 2;
    for (int64_t i = 0; i < m.k / 2; ++i, out += 2) {
      const auto pair = static_cast<uint8_t>(from[i]);
      out[0] = pair & 15, out[1] = pair >> 4;
    }
  }
}

// What code 0 of a group means, as f16, and whether the file's offset is that value with its scale's share, rounded to f32.
bool HasHalfMinimum(float scale, int zero, float offset) {
  const double share = double{scale} * zero;
  return static_cast<float>(double{HalfToFloat(FloatToHalf(static_cast<float>(offset - share)))} + share) == offset;
}

}  // namespace

int64_t GroupOf(const GroupedMatrix& m, int64_t column) {
  return m.group_of.empty() ? column / m.group : LoadAs<int32_t>(m.group_of.data() + static_cast<size_t>(column) * 4);
}

GroupedFacts FactsOf(const GroupedMatrix& m) {
  GroupedFacts f;
  if (m.layout == GroupedLayout::kColumns) return f;
  int low = 1 << m.bits, high = 0;
  for (int64_t i = 0; i < m.n * m.n_groups; ++i) {
    const int64_t row = IsTransposed(m) ? i % m.n : i / m.n_groups, g = IsTransposed(m) ? i / m.n : i % m.n_groups;
    const float scale = ScaleAt(m, row, g), half = HalfToFloat(FloatToHalf(scale));
    f.half_scales = f.half_scales && half == scale;
    f.near_half_scales = f.near_half_scales && std::abs(half - scale) <= std::abs(scale) / 2048;
    const int zero = ZeroAt(m, row, g);
    if (!m.offsets.empty()) f.half_minimums = f.half_minimums && HasHalfMinimum(scale, zero, OffsetAt(m, row, g));
    low = std::min(low, zero);
    high = std::max(high, zero);
  }
  f.lowest = -high;
  f.highest = (1 << m.bits) - 1 - low;
  if (m.layout == GroupedLayout::kFp4) {
    f.lowest = -kMostTwiceE2M1;
    f.highest = kMostTwiceE2M1;
  }
  return f;
}

bool HasBlocks(const GroupedMatrix& m) {
  return m.layout != GroupedLayout::kColumns && m.group_of.empty() && m.k % 32 == 0 && (m.group % 32 == 0 || m.n_groups == 1);
}

DType SameBlockType(const GroupedMatrix& m) {
  const GroupedFacts& f = m.facts;
  if (m.layout == GroupedLayout::kFp4 && m.scale_form == ScaleForm::kE8M0 && m.group == 32 && m.k % 32 == 0) return DType::kMXFP4;
  if (!HasBlocks(m) || !f.half_scales || !m.offsets.empty()) return DType::kCount;
  if (f.lowest >= -8 && f.highest <= 7) return DType::kQ4_0;
  if (f.lowest >= -16 && f.highest <= 15) return DType::kQ5_0;
  return f.lowest >= -128 && f.highest <= 127 ? DType::kQ8_0 : DType::kCount;
}

void ReadGroupedCodes(const GroupedMatrix& m, int64_t begin, int64_t end, const GroupedRows& out) {
  SLM_ASSERT(begin >= 0 && begin <= end && end <= m.n);
  if (m.layout == GroupedLayout::kGptq && 32 % m.bits == 0) ReadColumnWords(m, begin, end, out.codes);
  else if (HasNibbleRows(m)) ReadNibbleRows(m, begin, end, out.codes);
  else
    ForCodes(m, begin, end, [&](int64_t row, int64_t k) { out.codes[(row - begin) * m.k + k] = static_cast<uint8_t>(CodeAt(m, row, k)); });
  for (int64_t row = begin; row < end; ++row)
    for (int64_t g = 0; g < m.n_groups; ++g) {
      const int64_t i = (row - begin) * m.n_groups + g;
      out.zeros[i] = static_cast<int16_t>(ZeroAt(m, row, g));
      out.scales[i] = ScaleAt(m, row, g);
      if (!m.offsets.empty() && out.offsets) out.offsets[i] = OffsetAt(m, row, g);
    }
}

void ReadColumnRows(const GroupedMatrix& m, int64_t begin, int64_t end, std::byte* out) {
  SLM_ASSERT(m.layout == GroupedLayout::kColumns && begin >= 0 && begin <= end && end <= m.n);
  const size_t bytes = Info(m.scale_type).block_bytes, n = static_cast<size_t>(m.n), k = static_cast<size_t>(m.k);
  for (size_t column = 0; column < k; ++column) {
    const std::byte* from = m.codes.data() + (column * n + static_cast<size_t>(begin)) * bytes;
    for (size_t row = 0; row < static_cast<size_t>(end - begin); ++row)
      std::memcpy(out + (row * k + column) * bytes, from + row * bytes, bytes);
  }
}

void ReadGroupedValues(const GroupedMatrix& m, int64_t begin, int64_t end, float* out) {
  SLM_ASSERT(begin >= 0 && begin <= end && end <= m.n);
  if (m.layout == GroupedLayout::kColumns) {
    const int64_t bytes = Info(m.scale_type).block_bytes;
    for (int64_t column = 0; column < m.k; ++column)
      for (int64_t row = begin; row < end; ++row)
        out[(row - begin) * m.k + column] = Number(m.scale_type, m.codes.data() + (column * m.n + row) * bytes);
    return;
  }
  ForCodes(m, begin, end, [&](int64_t row, int64_t k) {
    const int64_t g = GroupOf(m, k);
    float& value = out[(row - begin) * m.k + k];
    value = ScaleAt(m, row, g) * static_cast<float>(CodeAt(m, row, k) - ZeroAt(m, row, g));
    if (!m.offsets.empty()) value += OffsetAt(m, row, g);
  });
}

}  // namespace slm::model
