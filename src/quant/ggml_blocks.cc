// See ggml_blocks.h.
#include "quant/ggml_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "quant/fp4.h"

namespace slm::quant {
namespace {

using Byte = unsigned char;

void PutHalf(Byte* to, float v) {
  const uint16_t h = FloatToHalf(v);
  std::memcpy(to, &h, 2);
}

// 32 codes as 16 bytes: code i in the low nibble of byte i, code 16 + i in the high one.
void PutNibbles(Byte* to, const uint8_t* q) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<Byte>((q[i] & 15) | (q[16 + i] & 15) << 4);
}
// The fifth bits of 32 codes, bit i for code i.
void PutFifthBits(Byte* to, const uint8_t* q) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(q[i] >> 4) << i;
  std::memcpy(to, &bits, 4);
}

// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: d [| min] [| fifth bits] | codes.
void WriteSmall(const BlockForm& form, const Grid& grid, const uint8_t* q, Byte* out) {
  PutHalf(out, grid.scale);
  out += 2;
  if (form.scheme == Scheme::kFloatMin) {
    PutHalf(out, grid.min);
    out += 2;
  }
  if (form.bits == 8) {
    for (int i = 0; i < 32; ++i) out[i] = static_cast<Byte>(q[i] - 128);
    return;
  }
  if (form.bits == 5) {
    PutFifthBits(out, q);
    out += 4;
  }
  PutNibbles(out, q);
}

// d | d_min | eight pairs of six bits in 12 bytes | 32 bytes hold two groups of 32, low nibbles first.
void WriteQ4K(const Shared& shared, const Grid* grids, const uint8_t* q, Byte* out) {
  PutHalf(out, shared.d);
  PutHalf(out + 2, shared.d_min);
  Byte* s = out + 4;
  for (int g = 0; g < 4; ++g) {
    const int low = ScaleNumber(shared, grids[g]), low_min = MinNumber(shared, grids[g]);
    const int high = ScaleNumber(shared, grids[g + 4]), high_min = MinNumber(shared, grids[g + 4]);
    s[g] = static_cast<Byte>(low | (high >> 4) << 6);
    s[g + 4] = static_cast<Byte>(low_min | (high_min >> 4) << 6);
    s[g + 8] = static_cast<Byte>((high & 15) | (high_min & 15) << 4);
  }
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i) out[16 + 32 * pair + i] = static_cast<Byte>(q[64 * pair + i] | q[64 * pair + 32 + i] << 4);
}

// 128 bytes of low nibbles | 64 bytes of high bits | 16 scales | d. Each half of 128 values: planes of 32 as in dequantize.cc.
void WriteQ6K(const Shared& shared, const Grid* grids, const uint8_t* codes, Byte* out) {
  std::memset(out, 0, 210);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, plane = i % 128 / 32, at = i % 32, q = codes[i];
    out[64 * half + 32 * (plane % 2) + at] |= static_cast<Byte>((q & 15) << (4 * (plane / 2)));
    out[128 + 32 * half + at] |= static_cast<Byte>((q >> 4) << (2 * plane));
  }
  for (int g = 0; g < 16; ++g) out[192 + g] = static_cast<Byte>(ScaleNumber(shared, grids[g]));
  PutHalf(out + 208, shared.d);
}

}  // namespace

DType FittingType(DType dtype, int64_t width) {
  if (width % Info(dtype).block == 0) return dtype;
  if (width % 32 != 0) return DType::kF16;
  return dtype == DType::kQ6_K ? DType::kQ8_0 : DType::kQ4_1;
}

bool CanEncode(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ6_K:
    case DType::kMXFP4: return true;
    default: return false;
  }
}

// Without data about the inputs. Grids that are symmetric around 0 have no code to spare beyond
// the largest value, so that the least plain error is bought by cutting off large weights, which are there for large products:
// on SmolLM2-135M the KLD of Q4_0 is 0.353 with equal weights, 0.323 with the scale from the range, 0.331 with these. Grids with
// a minimum gain nothing from it.
const float* PlainErrorWeights(DType dtype, std::span<const float> row, std::vector<float>* u) {
  if (dtype != DType::kQ4_0 && dtype != DType::kQ5_0) return nullptr;
  double sum = 0;
  for (const float v : row) sum += std::abs(static_cast<double>(v));
  const auto mean = static_cast<float>(sum / static_cast<double>(row.size()));
  u->resize(row.size());
  for (size_t i = 0; i < row.size(); ++i) (*u)[i] = mean + std::abs(row[i]);
  return u->data();
}

void WriteBlock(DType dtype, const Shared& shared, const Grid* grids, const uint8_t* codes, std::byte* to) {
  Byte* out = reinterpret_cast<Byte*>(to);
  if (dtype == DType::kQ4_K) WriteQ4K(shared, grids, codes, out);
  else if (dtype == DType::kQ6_K) WriteQ6K(shared, grids, codes, out);
  else WriteSmall(FormOf(dtype), grids[0], codes, out);
}

void EncodeRow(DType dtype, Search search, std::span<const float> w, const float* u, std::byte* to) {
  const DTypeInfo info = Info(dtype);
  SLM_ASSERT(CanEncode(dtype) && w.size() % info.block == 0);
  if (dtype == DType::kF32) {
    std::memcpy(to, w.data(), w.size() * sizeof(float));
    return;
  }
  if (dtype == DType::kF16) {
    for (size_t i = 0; i < w.size(); ++i) PutHalf(reinterpret_cast<Byte*>(to) + 2 * i, w[i]);
    return;
  }
  if (dtype == DType::kMXFP4) {  // e8m0 | 16 bytes
    for (size_t i = 0; i < w.size(); i += info.block, to += info.block_bytes) {
      uint8_t codes[32];
      to[0] = static_cast<std::byte>(QuantizeFp4Group(Fp4::kMx, search, w.subspan(i, info.block), u ? u + i : nullptr, 1, codes));
      PutNibbles(reinterpret_cast<Byte*>(to) + 1, codes);
    }
    return;
  }
  const BlockForm form = FormOf(dtype);
  const auto group = static_cast<size_t>(form.group);
  for (size_t i = 0; i < w.size(); i += info.block, to += info.block_bytes) {
    Grid grids[kMostGroups];
    uint8_t codes[256];
    const Shared shared = ChooseBlock(form, search, w.subspan(i, info.block), u ? u + i : nullptr, grids);
    for (size_t g = 0; g < info.block / group; ++g)
      AssignCodes(grids[g], form.bits, w.subspan(i + g * group, group), nullptr, codes + g * group);
    WriteBlock(dtype, shared, grids, codes, to);
  }
}

}  // namespace slm::quant
