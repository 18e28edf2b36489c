// Steps that end in the activations of quantized matrices or in a matrix product, and the embedding.
#include <algorithm>
#include <cstring>

#include "backend/cpu/steps.h"
#include "kernels/embed/contract.h"
#include "model/model.h"
#include "telemetry/telemetry.h"

namespace slm::backend {
namespace {

// Calls f(row, activation row): with one row every thread fills its own, with several the threads split them.
template <class F>
void ForActivationRows(const Frame& f, RowSet set, int64_t padded_k, const F& make) {
  const RowRange rows = RowsOf(set, f);
  if (rows.count == 1) {
    make(rows.begin, f.mine.Row(0, padded_k));
    return;
  }
  const Range r = SplitRange(rows.count, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) make(rows.begin + static_cast<int>(i), f.shared.Row(i, padded_k));
}

// Calls f(row, to) for this thread's share of the rows: what f writes to `to` (n values), or returns instead, becomes that row of the
// tiles.
template <class F>
void ForTileRows(const Frame& f, RowSet set, const WideInput& wide, int n, const F& make) {
  const RowRange rows = RowsOf(set, f);
  const Range r = SplitRange(rows.count, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) wide.tiles.store_row(make(rows.begin + static_cast<int>(i), f.row), n, i, f.shared.Tiles());
}

// From this many rows a thread on, threads split the rows of a product and not its panels: what a thread writes it then reads itself, and
// no row travels between cores. Fewer rows do not pay for unpacking every panel on every thread.
constexpr int kOwnRows = 96;

// A product with a matrix that stays in the file: this thread packs a few panels, multiplies by them, and packs the next.
void MultiplyFromFile(const PackedMatrix& w, const kernels::MatMulKernel& kernel, kernels::MatMulArgs a, uint8_t* piece) {
  constexpr int64_t kDropBytes = int64_t{4} << 20;  // of source between two drops: a system call each
  const int64_t most = PiecePanels(w), begin = a.panel_begin, end = a.panel_end;
  const kernels::MatMulArgs whole = a;
  a.w = piece;
  a.panel_begin = 0;
  for (int64_t at = begin, kept_from = begin; at < end;) {
    const int64_t next = std::min(at + most, end);
    PackPiece(w, at, next, piece);
    a.panel_end = static_cast<int>(next - at);
    a.out = whole.out + at * kernels::kPanelRows;
    a.bias = whole.bias ? whole.bias + at * kernels::kPanelRows : nullptr;
    kernel.fn(a);
    at = next;
    if ((at - kept_from) * a.panel_bytes < kDropBytes && at < end) continue;
    DropPanels(w, kept_from, at);
    kept_from = at;
  }
}

}  // namespace

void EmbedStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("embed");
  const auto& s = *static_cast<const EmbedStep*>(operands);
  const Range r = SplitRange(f.m, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) {
    float* out = f.At(s.out, i);
    if (s.packed) {
      kernels::EmbedRow(s.packed->kind, s.packed->data, s.packed->k, f.tokens[i], s.scale, out);
      continue;
    }
    const int64_t k = s.out.width;
    model::ReadRows(*s.file, f.tokens[i], f.tokens[i] + 1, out);
    if (s.scale != 1)
      for (int64_t j = 0; j < k; ++j) out[j] *= s.scale;
  }
}

void QuantizeStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("norm_quantize");
  const auto& s = *static_cast<const QuantizeStep*>(operands);
  const int n = static_cast<int>(s.x.width);
  if (s.wide.Takes(RowsOf(s.rows, f).count))
    return ForTileRows(f, s.rows, s.wide, n, [&](int token, float* y) -> const float* {
      if (!s.norm_w) return f.At(s.x, token);
      s.wide.norm.rms_norm(f.At(s.x, token), s.norm_w, s.eps, n, y);
      return y;
    });
  ForActivationRows(f, s.rows, kernels::PaddedK(n), [&](int token, kernels::Q8Row row) {
    const float* x = f.At(s.x, token);
    if (s.norm_w) s.kernels.rms_norm_quantize(x, s.norm_w, s.eps, n, nullptr, row);
    else s.kernels.quantize(x, n, row);
  });
}

void GateQuantizeStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("gate_quantize");
  const auto& s = *static_cast<const GateQuantizeStep*>(operands);
  const int n = static_cast<int>(s.gate.width);
  if (s.wide.Takes(RowsOf(s.rows, f).count))
    return ForTileRows(f, s.rows, s.wide, n, [&](int token, float* y) -> const float* {
      s.wide.act.gate(f.At(s.gate, token), f.At(s.up, token), s.act, n, y);
      return y;
    });
  ForActivationRows(f, s.rows, kernels::PaddedK(n),
                    [&](int token, kernels::Q8Row row) { s.kernels.gate_quantize(f.At(s.gate, token), f.At(s.up, token), s.act, n, row); });
}

void PadStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("pad");
  const auto& s = *static_cast<const PadStep*>(operands);
  const RowRange rows = RowsOf(s.rows, f);
  const Range r = SplitRange(rows.count, 1, f.thread, f.n_threads);
  for (int64_t i = r.begin; i < r.end; ++i) {
    float* to = f.padded + i * s.padded_k;
    std::memcpy(to, f.At(s.x, rows.begin + i), static_cast<size_t>(s.x.width) * 4);
    std::fill(to + s.x.width, to + s.padded_k, 0.0f);
  }
}

void MatMulStep::Run(const void* operands, const Frame& f) {
  SLM_ZONE("matmul");
  const auto& s = *static_cast<const MatMulStep*>(operands);
  const RowRange all = RowsOf(s.rows, f);
  const bool wide = s.wide.fn != nullptr && all.count >= kernels::kWideTokens;
  const bool own_rows = !wide && !s.w->file && all.count >= kOwnRows * f.n_threads;
  const Range share = own_rows ? SplitRange(all.count, 1, f.thread, f.n_threads) : Range{0, all.count};
  const RowRange rows = {all.begin + static_cast<int>(share.begin), static_cast<int>(share.end - share.begin)};
  const Range panels = own_rows ? Range{0, s.w->n_panels()} : SplitRange(s.w->n_panels(), 1, f.thread, f.n_threads);
  if (panels.begin == panels.end) return;
  kernels::MatMulArgs a;
  a.w = s.w->data;
  a.panel_bytes = kernels::PanelBytes(s.w->kind, s.w->k);
  a.k = static_cast<int>(kernels::PaddedK(s.w->k));
  a.m = rows.count;
  if (wide) {
    a.tiles = f.shared.Tiles();
  } else if (kernels::IsQuantized(s.w->kind)) {
    const kernels::Q8Row in = (rows.count == 1 ? f.mine : f.shared).Row(share.begin, a.k);
    a.a = in.q;
    a.a_scale = in.scale;
    a.a_sum = in.sum;
    a.residual = in.residual;
    a.residual_count = in.residual_count;
  } else if (s.from_padded) {
    a.x = f.padded + share.begin * a.k;
    a.x_stride = a.k;
  } else {
    a.x = f.At(s.x, rows.begin);
    a.x_stride = s.x.stride;
  }
  a.out = f.At(s.out, rows.begin);
  a.out_stride = s.out.stride;
  a.bias = s.bias.empty() ? nullptr : s.bias.data();
  a.accumulate = s.accumulate;
  a.panel_begin = static_cast<int>(panels.begin);
  a.panel_end = static_cast<int>(panels.end);
  a.scratch = f.unpack;
  if (s.w->file) MultiplyFromFile(*s.w, s.kernel, a, f.piece);
  else (wide ? s.wide : s.kernel).fn(a);
}

}  // namespace slm::backend
