// EmbedRow: gathers one row out of its panel. A panel's block touches 9 to 18 lines; a token looks up one row, so the gather is
// a few microseconds at most and stays scalar.
#include "kernels/embed/contract.h"

#include <bit>
#include <cstring>

#include "base/float16.h"
#include "kernels/packed/value.h"

namespace slm::kernels {
namespace {

// The exact value of a code is scale * code + min: the product has at most 11 + 7 + 6 significant bits and is exact in f32, the
// sum is rounded once.
void Quantized(PackedKind kind, const uint8_t* panel, int64_t k, int r, float scale, float* out) {
  const int64_t n = kBlockK / ScalesOf(kind);  // values with one scale
  for (int64_t i = 0; i < k; i += n) {
    const int64_t block = i / kBlockK, end = k - i < n ? k : i + n;
    const float s = ScaleAt(kind, panel, r, block, static_cast<int>(i % kBlockK / n)), lowest = MinAt(kind, panel, r, block);
    for (int64_t j = i; j < end; ++j) out[j] = (s * static_cast<float>(CodeAt(kind, panel, r, j)) + lowest) * scale;
  }
}

void Float(PackedKind kind, const uint8_t* panel, int64_t k, int r, float scale, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    const uint8_t* p = panel + ElementOffset(kind, r, i);
    float v;
    if (kind == PackedKind::kF32) {
      std::memcpy(&v, p, 4);
    } else {
      uint16_t h;
      std::memcpy(&h, p, 2);
      v = kind == PackedKind::kF16 ? HalfToFloat(h) : BFloat16ToFloat(h);
    }
    out[i] = v * scale;
  }
}

}  // namespace

void EmbedRow(PackedKind kind, const uint8_t* w, int64_t k, int64_t row, float scale, float* out) {
  const uint8_t* panel = w + row / kPanelRows * PanelBytes(kind, k);
  const int r = static_cast<int>(row % kPanelRows);
  if (IsQuantized(kind)) Quantized(kind, panel, k, r, scale, out);
  else Float(kind, panel, k, r, scale, out);
}

}  // namespace slm::kernels
