// See pack.h.
#include "model/grouped/pack.h"

#include <algorithm>

#include "base/check.h"

namespace slm::model {
namespace {

// Where row 8c + i goes in AWQ's word c.
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Puts `code` as number `i` into a stream of b-bit codes whose words are `stride` apart.
void PutStream(Words* words, int64_t first, int64_t stride, int64_t i, int bits, uint32_t code) {
  const int64_t bit = i * bits, at = first + bit / 32 * stride;
  const int shift = static_cast<int>(bit % 32);
  (*words)[static_cast<size_t>(at)] |= code << shift;
  if (shift + bits > 32) (*words)[static_cast<size_t>(at + stride)] |= code >> (32 - shift);
}

size_t Size(int64_t n) { return static_cast<size_t>(n); }

}  // namespace

GroupedCodes TakeApart(const GroupedMatrix& m) {
  GroupedCodes c{.bits = m.bits, .n = m.n, .k = m.k, .group = m.group, .codes = {}, .zeros = {}, .scales = {}, .group_of = {}};
  c.codes.resize(Size(m.n * m.k));
  c.zeros.resize(Size(m.n * m.n_groups));
  c.scales.resize(c.zeros.size());
  ReadGroupedCodes(m, 0, m.n, {c.codes.data(), c.zeros.data(), c.scales.data()});
  for (int64_t k = 0; k < m.k && !m.group_of.empty(); ++k) c.group_of.push_back(static_cast<int32_t>(GroupOf(m, k)));
  return c;
}

Words AwqCodes(const GroupedCodes& c) {
  SLM_ASSERT(c.bits == 4 && c.n % 8 == 0);
  Words out(Size(c.k * c.n / 8));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t k = 0; k < c.k; ++k)
      out[Size(k * (c.n / 8) + row / 8)] |= static_cast<uint32_t>(c.codes[Size(row * c.k + k)]) << (4 * kAwqNibble[row % 8]);
  return out;
}

Words AwqZeros(const GroupedCodes& c) {
  Words out(Size(c.n_groups() * c.n / 8));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t g = 0; g < c.n_groups(); ++g)
      out[Size(g * (c.n / 8) + row / 8)] |= static_cast<uint32_t>(c.zeros[Size(row * c.n_groups() + g)]) << (4 * kAwqNibble[row % 8]);
  return out;
}

Words GptqCodes(const GroupedCodes& c) {
  SLM_ASSERT(c.k * c.bits % 32 == 0);
  Words out(Size(c.k * c.bits / 32 * c.n));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t k = 0; k < c.k; ++k) PutStream(&out, row, c.n, k, c.bits, c.codes[Size(row * c.k + k)]);
  return out;
}

Words GptqZeros(const GroupedCodes& c, int offset) {
  SLM_ASSERT(c.n * c.bits % 32 == 0);
  const int64_t words = c.n * c.bits / 32;
  Words out(Size(c.n_groups() * words));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t g = 0; g < c.n_groups(); ++g)
      PutStream(&out, g * words, 1, row, c.bits, static_cast<uint32_t>(c.zeros[Size(row * c.n_groups() + g)] - offset));
  return out;
}

Words CompressedCodes(const GroupedCodes& c) {
  const int64_t per_word = 32 / c.bits, words = (c.k + per_word - 1) / per_word;
  Words out(Size(c.n * words));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t k = 0; k < c.k; ++k) PutStream(&out, row * words, 1, k, c.bits, c.codes[Size(row * c.k + k)]);
  return out;
}

Words CompressedZeros(const GroupedCodes& c) {
  const int64_t per_word = 32 / c.bits, groups = c.n_groups();
  Words out(Size((c.n + per_word - 1) / per_word * groups));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t g = 0; g < groups; ++g) PutStream(&out, g, groups, row, c.bits, static_cast<uint32_t>(c.zeros[Size(row * groups + g)]));
  return out;
}

std::vector<float> TransposedScales(const GroupedCodes& c) {
  std::vector<float> out(c.scales.size());
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t g = 0; g < c.n_groups(); ++g) out[Size(g * c.n + row)] = c.scales[Size(row * c.n_groups() + g)];
  return out;
}

MatMulNBitsTensors PackMatMulNBits(const GroupedCodes& c) {
  SLM_ASSERT((c.bits == 4 || c.bits == 8) && c.group_of.empty() && c.group >= 16 && (c.group & (c.group - 1)) == 0);
  const int64_t groups = c.n_groups(), per_byte = 8 / c.bits, block = c.group / per_byte, zero_bytes = (groups + per_byte - 1) / per_byte;
  MatMulNBitsTensors out;
  out.b.resize(Size(c.n * groups * block));
  out.scales = c.scales;
  const auto put = [&](std::vector<uint8_t>& to, int64_t first, int64_t i, int code) {
    to[Size(first + i / per_byte)] |= static_cast<uint8_t>(code << (i % per_byte * c.bits));
  };
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t k = 0; k < groups * c.group; ++k)
      put(out.b, row * groups * block, k, k < c.k ? c.codes[Size(row * c.k + k)] : c.zeros[Size(row * groups + k / c.group)]);
  const int16_t middle = static_cast<int16_t>(1 << (c.bits - 1));
  if (std::all_of(c.zeros.begin(), c.zeros.end(), [&](int16_t z) { return z == middle; })) return out;
  out.zero_points.resize(Size(c.n * zero_bytes));
  for (int64_t row = 0; row < c.n; ++row)
    for (int64_t g = 0; g < groups; ++g) put(out.zero_points, row * zero_bytes, g, c.zeros[Size(row * groups + g)]);
  return out;
}

}  // namespace slm::model
