// Row-major float weights into the packed layout: a line holds one K of 32 rows, a transposition panel by panel.
#include <cstring>

#include "kernels/matmul_float/contract.h"
#include "kernels/packed/position.h"

namespace slm::kernels {
namespace {

// Elements of kBytes each are moved, never interpreted; the source need not be aligned (file formats do not promise it).
// 16 K at a time keep both sides in L1.
template <int kBytes>
void PackPanel(const uint8_t* rows, int64_t n_rows, int64_t k, uint8_t* dst) {
  constexpr int64_t kStep = 16;
  for (int64_t k0 = 0; k0 < k; k0 += kStep) {
    const int64_t k1 = k0 + kStep < k ? k0 + kStep : k;
    for (int64_t r = 0; r < n_rows; ++r)
      for (int64_t i = k0; i < k1; ++i) std::memcpy(dst + (i * kPanelRows + r) * kBytes, rows + (r * k + i) * kBytes, kBytes);
  }
}

}  // namespace

void PackFloat(PackedKind kind, int64_t k, int64_t row_begin, int64_t row_end, const void* rows, uint8_t* dst) {
  const int64_t panel_bytes = PanelBytes(kind, k), row_bytes = k * ElementBytes(kind);
  for (int64_t row = row_begin; row < row_end; row += kPanelRows) {
    uint8_t* panel = dst + row / kPanelRows * panel_bytes;
    const uint8_t* src = static_cast<const uint8_t*>(rows) + (row - row_begin) * row_bytes;
    const int64_t n_rows = row_end - row < kPanelRows ? row_end - row : kPanelRows;
    std::memset(panel, 0, static_cast<size_t>(panel_bytes));
    if (kind == PackedKind::kF32) PackPanel<4>(src, n_rows, k, panel);
    else PackPanel<2>(src, n_rows, k, panel);
  }
}

}  // namespace slm::kernels
