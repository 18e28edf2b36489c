// See gptq.h. Rows are independent: threads take tiles of them.
#include "quant/gptq.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/packed/contract.h"
#include "quant/ggml_blocks.h"
#include "quant/row_tile.h"

namespace slm::quant {

CodedRows::CodedRows(const BlockForm& f, int64_t n, int64_t k) : form(f), rows(n), width(k) {
  codes.resize(static_cast<size_t>(n * k));
  grids.resize(static_cast<size_t>(n * (k / f.group)));
  if (f.is_super()) shared.resize(static_cast<size_t>(n * (k / f.width())));
}

void CodedRows::Values(int64_t i, float* out) const {
  const uint8_t* q = codes.data() + i * width;
  const Grid* grid = grids.data() + i * (width / form.group);
  for (int64_t j = 0; j < width; ++j) out[j] = ValueOf(grid[j / form.group], q[j]);
}

GptqReport SolveGptq(const Curvature& h, const BlockForm& form, const float* w, int64_t rows, const GptqOptions& options, ThreadTeam& team,
                     CodedRows* out) {
  SLM_ASSERT(h.k() % form.width() == 0);
  *out = CodedRows(form, rows, h.k());
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  std::vector<GptqReport> reports(static_cast<size_t>(tiles));
  auto work = [&](int thread, int n_threads) {
    RowTile tile(h, form);
    for (int64_t t = thread; t < tiles; t += n_threads)
      tile.Solve(w, t * kTileRows, std::min(kTileRows, rows - t * kTileRows), options, out, &reports[static_cast<size_t>(t)]);
  };
  team.Run(work);
  GptqReport total;
  for (const GptqReport& r : reports) {
    total.error += r.error;
    total.nearest += r.nearest;
    total.refit += r.refit;
    total.plain_rows += r.plain_rows;
  }
  return total;
}

uint64_t GptqBytes(int64_t rows, int64_t width, int n_threads) {
  const uint64_t coded = 2 * static_cast<uint64_t>(rows) * static_cast<uint64_t>(width);  // codes, and grids of groups of 16
  return Curvature::NeedBytes(width) + coded + static_cast<uint64_t>(n_threads) * RowTile::NeedBytes(kernels::PaddedK(width));
}

void EncodeCoded(DType dtype, const CodedRows& coded, int64_t i, std::byte* out) {
  const int64_t block = coded.form.width(), blocks = coded.width / block;
  SLM_ASSERT(block == Info(dtype).block);
  for (int64_t b = 0; b < blocks; ++b, out += Info(dtype).block_bytes)
    WriteBlock(dtype, coded.form.is_super() ? coded.shared[static_cast<size_t>(i * blocks + b)] : Shared{},
               coded.grids.data() + (i * blocks + b) * coded.form.groups, coded.codes.data() + i * coded.width + b * block, out);
}

}  // namespace slm::quant
