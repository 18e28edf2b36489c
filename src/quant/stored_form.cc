// See stored_form.h.
#include "quant/stored_form.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "model/model.h"
#include "quant/ggml_blocks.h"
#include "quant/lpbq.h"

namespace slm::quant {
namespace {

uint16_t HalfBits(DType dtype, float v) {
  SLM_ASSERT(dtype == DType::kF16 || dtype == DType::kBF16);
  return dtype == DType::kF16 ? FloatToHalf(v) : FloatToBFloat16(v);
}

}  // namespace

StoredForm StoredForm::Of(Storage storage, int group) {
  const bool fp4 = storage != Storage::kLpbq;
  const BlockForm grid{.scheme = Scheme::kSymmetric, .bits = fp4 ? 8 : 4, .group = group, .store = Store::kF32};
  return {DType::kCount, grid, storage};
}

void StoreRow(const StoredForm& form, Search search, std::span<const float> w, const float* u, float* values) {
  std::vector<float> own;
  if (!form.grid) {
    std::vector<std::byte> bytes(RowBytes(form.dtype, w.size()));
    EncodeRow(form.dtype, search, w, u ? u : PlainErrorWeights(form.dtype, w, &own), bytes.data());
    model::Dequantize(form.dtype, bytes, 0, static_cast<int64_t>(w.size()), values);
    return;
  }
  const auto group = static_cast<size_t>(form.grid->group);
  if (form.storage == Storage::kLpbq || form.grid->row_multiples > 0) return StoreLpbqRow(search, w, static_cast<int>(group), u, values);
  if (form.storage != Storage::kGrid) return StoreFp4Row(Fp4Of(form.storage), search, w, u, values);
  std::vector<uint8_t> codes(group);
  for (size_t at = 0; at < w.size(); at += group) {
    Grid grid;
    ChooseBlock(*form.grid, search, w.subspan(at, group), u ? u + at : nullptr, &grid);
    AssignCodes(grid, form.grid->bits, w.subspan(at, group), nullptr, codes.data());
    for (size_t i = 0; i < group; ++i) values[at + i] = ValueOf(grid, codes[i]);
  }
}

float AsStored(DType dtype, float v) {
  if (dtype == DType::kF32 || dtype == DType::kF64) return v;
  const uint16_t bits = HalfBits(dtype, v);
  return dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

std::vector<std::byte> FloatBytes(DType dtype, std::span<const float> values) {
  std::vector<std::byte> out(values.size() * Info(dtype).block_bytes);
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), values.data(), out.size());
    return out;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF64) {
      const auto wide = static_cast<double>(values[i]);
      std::memcpy(out.data() + 8 * i, &wide, 8);
      continue;
    }
    const uint16_t bits = HalfBits(dtype, values[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

}  // namespace slm::quant
