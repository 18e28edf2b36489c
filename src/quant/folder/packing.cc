// See packing.h.
#include "quant/folder/packing.h"

#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/small_floats.h"

namespace slm::quant {
namespace {
using model::GroupedCodes;
using model::hf::PackedFormat;

bool IsGptq(PackedFormat f) { return f == PackedFormat::kGptq || f == PackedFormat::kGptqV2; }

// A view of a vector's bytes.
template <class T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

std::vector<std::byte> StoredScales(const std::vector<float>& scales, std::string_view dtype) {
  std::vector<std::byte> out(scales.size() * (dtype == "F32" ? 4 : 2));
  for (size_t i = 0; i < scales.size(); ++i) {
    if (dtype == "F32") {
      std::memcpy(out.data() + 4 * i, &scales[i], 4);
      continue;
    }
    const uint16_t bits = dtype == "F16" ? FloatToHalf(scales[i]) : FloatToBFloat16(scales[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

// Two E2M1 codes a byte, low first.
std::vector<uint8_t> Fp4Codes(const GroupedCodes& c) {
  std::vector<uint8_t> out(c.codes.size() / 2);
  for (size_t i = 0; i < c.codes.size(); ++i) out[i / 2] |= static_cast<uint8_t>(CodeOfTwiceE2M1(c.codes[i] - 128) << (i % 2 * 4));
  return out;
}
// The codes of scales, which are kept halved.
std::vector<uint8_t> Fp4Scales(const PackedCodes& p, Storage storage) {
  std::vector<uint8_t> out;
  for (const float half : p.codes.scales)
    out.push_back(storage == Storage::kNvFp4 ? NearestE4M3(2 * half / p.shared)
                                             : static_cast<uint8_t>(half > 0 ? std::ilogb(half) + 128 : 0));
  return out;
}
// Codes as signed bytes.
std::vector<uint8_t> SignedCodes(const GroupedCodes& c) {
  std::vector<uint8_t> out(c.codes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(c.codes[i] - (1 << (c.bits - 1)));
  return out;
}

}  // namespace

PackedCodes CodesOf(CodedRows coded) {
  GroupedCodes c{.bits = coded.form.bits,
                 .n = coded.rows,
                 .k = coded.width,
                 .group = coded.form.group,
                 .codes = std::move(coded.codes),
                 .zeros = {},
                 .scales = {},
                 .group_of = {}};
  for (const Grid& g : coded.grids) {
    c.zeros.push_back(static_cast<int16_t>(g.zero));
    c.scales.push_back(g.scale);
  }
  return {.codes = std::move(c), .shared = coded.shared.empty() ? 1.0f : coded.shared[0].d};
}

Status WritePart(const FolderPart& p, const FolderPlan& plan, const PackedCodes& packed, model::safetensors::FileWriter& out) {
  const PackedFormat f = plan.recipe.format;
  const GroupedCodes& c = packed.codes;
  const bool fp4 = plan.spec.codes != model::hf::CodeType::kInt, floats = plan.spec.inputs == model::hf::PackedInputs::kFloat;
  switch (p.part) {
    case Part::kWhole: break;
    case Part::kCodes:
      if (fp4) return out.Data(Bytes(Fp4Codes(c)));
      if (!floats) return out.Data(Bytes(SignedCodes(c)));
      return out.Data(Bytes(f == PackedFormat::kAwq ? model::AwqCodes(c) : IsGptq(f) ? model::GptqCodes(c) : model::CompressedCodes(c)));
    case Part::kZeros:
      return out.Data(Bytes(f == PackedFormat::kAwq ? model::AwqZeros(c)
                            : IsGptq(f)             ? model::GptqZeros(c, f == PackedFormat::kGptq ? 1 : 0)
                                                    : model::CompressedZeros(c)));
    case Part::kScales:
      if (fp4) return out.Data(Bytes(Fp4Scales(packed, plan.recipe.storage)));
      return out.Data(StoredScales(f == PackedFormat::kCompressed ? c.scales : model::TransposedScales(c), p.dtype));
    case Part::kGroupOf: {
      std::vector<int32_t> of = c.group_of;
      for (int64_t k = 0; k < c.k && c.group_of.empty(); ++k) of.push_back(static_cast<int32_t>(k / c.group));
      return out.Data(Bytes(of));
    }
    case Part::kShape: return out.Data(Bytes(std::vector<int64_t>{c.n, c.k}));
    case Part::kGlobalScale: return out.Data(Bytes(std::vector<float>{1 / packed.shared}));
    case Part::kInputScale: return out.Data(Bytes(std::vector<float>{packed.input_most > 0 ? packed.input_most / 127 : 1.0f}));
  }
  return Ok();
}

}  // namespace slm::quant
