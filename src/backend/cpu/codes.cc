#include "backend/cpu/codes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/packed_matrix.h"
#include "base/float16.h"
#include "model/model.h"

namespace slm::backend {
namespace {

// Types that are kept exactly: the parts of their blocks as the kind has them.
void ReadExactly(DType dtype, kernels::PackedKind kind, const std::byte* row, int64_t k, RowCodes o) {
  const DTypeInfo info = Info(dtype);
  const int64_t block = info.block;
  const model::BlockForm form = model::FormOf(dtype);
  const int zero = kernels::LinesOf(kind).codes == 16 ? 0 : kernels::ZeroPoint(kind);
  model::BlockCodes c;
  for (int64_t i = 0; i < k / block; ++i, row += info.block_bytes) {
    model::ReadBlock(dtype, row, c);
    for (int64_t j = 0; j < block; ++j) o.q[i * block + j] = static_cast<uint8_t>(c.q[j] + zero);
    if (form.group == 0) std::fill_n(o.scale + i * (block / 32), block / 32, c.d);
    else o.scale[i] = c.d;
    if (form.min == model::BlockMin::kOne) o.min[i] = c.min;
    if (form.group == 0) continue;
    const int64_t groups = block / form.group;
    std::copy_n(c.scales, groups, o.sub_scale + i * groups);
    if (form.min != model::BlockMin::kGroups) continue;
    o.min[i] = -c.min;
    std::copy_n(c.mins, groups, o.sub_min + i * groups);
  }
}

// The half that a block's scale max|x| / 127 is stored as. A subnormal one is rounded up, so that 127 steps reach max|x|; a
// normal one misses it by less than half a step, which the clamp takes. Infinity when it does not fit.
float StoredScale(float top) {
  uint16_t half = FloatToHalf(top / 127.0f);
  if (half < 0x0400 && HalfToFloat(half) * 127.0f < top) ++half;
  return HalfToFloat(half);
}

}  // namespace

// A block with a value that is not finite, or too large for a half scale, gets scale NaN: the logits will show it.
void RoundRowCodes(int64_t k, RowCodes o) {
  for (int64_t b = 0; b < k / 32; ++b) {
    const float* x = o.values + 32 * b;
    uint8_t* q = o.q + 32 * b;
    float top = 0;
    bool finite = true;
    for (int i = 0; i < 32; ++i) {
      finite = finite && std::isfinite(x[i]);
      top = std::max(top, std::fabs(x[i]));
    }
    const float scale = StoredScale(top);
    if (!finite || !std::isfinite(scale) || scale == 0) {
      o.scale[b] = finite && scale == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      std::fill_n(q, 32, uint8_t{0});
      continue;
    }
    o.scale[b] = scale;
    for (int i = 0; i < 32; ++i)
      q[i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(std::nearbyint(x[i] / scale), -127.0f, 127.0f)));
  }
}

void ReadRowCodes(DType dtype, const std::byte* row, int64_t k, RowCodes out) {
  const KindChoice choice = ChooseKind(dtype);
  if (*choice.note == 0) ReadExactly(dtype, choice.kind, row, k, out);
  else {
    model::Dequantize(dtype, {row, static_cast<size_t>(RowBytes(dtype, static_cast<uint64_t>(k)))}, 0, k, out.values);
    RoundRowCodes(k, out);
  }
}

}  // namespace slm::backend
