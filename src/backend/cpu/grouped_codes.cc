// See grouped_codes.h.
#include "backend/cpu/grouped_codes.h"

#include <algorithm>
#include <vector>

namespace slm::backend {
namespace {
using kernels::PackedKind;

constexpr const char* kRounded = "rounded again to 8 bits per block of 32";

}  // namespace

KindChoice ChooseGroupedKind(const graph::Constant& c) {
  if (const model::GroupedMatrix& m = *c.parts[0].tensor->grouped; m.layout == model::GroupedLayout::kColumns) {
    for (const auto& p : c.parts)
      if (p.tensor->grouped->layout != m.layout || p.tensor->grouped->scale_type != m.scale_type) return {PackedKind::kF32, ""};
    return {m.scale_type == DType::kF32 ? PackedKind::kF32 : m.scale_type == DType::kF16 ? PackedKind::kF16 : PackedKind::kBF16, ""};
  }
  int lowest = 0, highest = 0, bits = 0;
  bool blocks = true, exact = true, near = true, offsets = false;
  for (const auto& p : c.parts) {
    const model::GroupedMatrix& m = *p.tensor->grouped;
    lowest = std::min(lowest, m.facts.lowest);
    highest = std::max(highest, m.facts.highest);
    if (m.layout == model::GroupedLayout::kColumns) return {PackedKind::kF32, ""};
    blocks = blocks && model::HasBlocks(m);
    exact = exact && m.facts.half_scales && m.facts.half_minimums;
    offsets = offsets || !m.offsets.empty();
    bits = std::max(bits, m.bits);
    near = near && m.facts.near_half_scales;
  }
  if (c.parts[0].tensor->grouped->k % kernels::kBlockK != 0) return {PackedKind::kF32, ""};
  if (!blocks) return {PackedKind::kQ8, kRounded};  // order of activation, or groups of 16
  if (!near) return {PackedKind::kF32, ""};
  const char* note = exact ? "" : "scales rounded to f16";
  if (offsets) return {bits <= 4 ? PackedKind::kQ4Min : PackedKind::kQ8Min, exact ? "" : "scales and minimums rounded to f16"};
  if (lowest >= -8 && highest <= 7) return {PackedKind::kQ4, note};
  if (lowest >= -16 && highest <= 15) return {PackedKind::kQ5, note};
  if (lowest >= -128 && highest <= 127) return {PackedKind::kQ8, note};
  return {PackedKind::kQ8Min, exact ? "zero points rounded to f16 minimums" : "scales and zero points rounded to f16"};
}

void ReadGroupedPanel(const model::GroupedMatrix& m, int64_t begin, int64_t end, const KindChoice& choice, RowCodes out) {
  const int64_t rows = end - begin, n_blocks = m.k / kernels::kBlockK;
  if (choice.kind == PackedKind::kQ8 && !model::HasBlocks(m)) {
    model::ReadGroupedValues(m, begin, end, out.values);
    for (int64_t r = 0; r < rows; ++r)
      RoundRowCodes(m.k, {out.q + r * m.k, out.scale + r * n_blocks, nullptr, nullptr, nullptr, out.values + r * m.k});
    return;
  }
  std::vector<int16_t> zeros(static_cast<size_t>(rows * m.n_groups));
  std::vector<float> scales(zeros.size()), offsets(zeros.size(), 0.0f);
  model::ReadGroupedCodes(m, begin, end, {out.q, zeros.data(), scales.data(), offsets.data()});
  const bool bytes = kernels::LinesOf(choice.kind).codes == 16;  // packed from int8
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < n_blocks; ++b) {
      const size_t g = static_cast<size_t>(r * m.n_groups + b * kernels::kBlockK / m.group);
      const bool min = kernels::HasMin(choice.kind);
      const int shift = min ? (bytes ? -128 : 0) : (bytes ? 0 : kernels::ZeroPoint(choice.kind)) - zeros[g];
      uint8_t* q = out.q + r * m.k + b * kernels::kBlockK;
      for (int i = 0; i < kernels::kBlockK; ++i) q[i] = static_cast<uint8_t>(q[i] + shift);
      out.scale[r * n_blocks + b] = scales[g];
      if (min) out.min[r * n_blocks + b] = static_cast<float>(double{scales[g]} * (-shift - zeros[g]) + offsets[g]);
    }
}

}  // namespace slm::backend
