// See stored_form.h.
#include "quant/stored_form.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "model/model.h"
#include "quant/ggml_blocks.h"
#include "quant/lpbq.h"
#include "quant/schemes.h"

namespace slm::quant {
namespace {

uint16_t HalfBits(DType dtype, float v) {
  SLM_ASSERT(dtype == DType::kF16 || dtype == DType::kBF16);
  return dtype == DType::kF16 ? FloatToHalf(v) : FloatToBFloat16(v);
}

}  // namespace

StoredForm StoredForm::Of(Storage storage, int group) {
  SLM_ASSERT(storage != Storage::kGrid);
  if (storage == Storage::kLpbq) return {DType::kCount, LpbqForm(group), storage};
  return {DType::kCount, BlockForm{.scheme = Scheme::kSymmetric, .bits = 8, .group = group, .store = Store::kF32}, storage};
}

void StoreRow(const StoredForm& form, Search search, std::span<const float> w, const float* u, float* values) {
  std::vector<float> own;
  if (!form.grid) {
    std::vector<std::byte> bytes(RowBytes(form.dtype, w.size()));
    EncodeRow(form.dtype, search, w, u ? u : PlainErrorWeights(form.dtype, w, &own), bytes.data());
    model::Dequantize(form.dtype, bytes, 0, static_cast<int64_t>(w.size()), values);
    return;
  }
  if (form.is_fp4()) return StoreFp4Row(Fp4Of(form.storage), search, w, u, values);
  CodedRows one(*form.grid, 1, static_cast<int64_t>(w.size()));
  QuantizeRow(search, w, u, 0, &one);
  one.Values(0, values);
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
