#include "quant/matrix.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "kernels/matmul_float/contract.h"

namespace slm::quant {
namespace {
constexpr std::align_val_t kAlign{64};
constexpr int64_t kBlockRows = 64;  // of a product that a thread takes at a time
}  // namespace

void Matrix::Free::operator()(float* p) const { ::operator delete[](p, kAlign); }

Matrix::Matrix(int64_t rows, int64_t columns) : rows_(rows), columns_(columns), stride_(kernels::PaddedK(columns)) {
  SLM_ASSERT(rows >= 0 && columns >= 0);
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(rows * stride_, 1)) * sizeof(float);
  values_.reset(static_cast<float*>(::operator new[](bytes, kAlign)));
  std::memset(values_.get(), 0, bytes);
}

Multiplier::Multiplier(const Machine& machine, const Matrix& b)
    : machine_(machine),
      n_(b.rows()),
      k_(b.columns()),
      packed_(1, kernels::PackedBytes(kernels::PackedKind::kF32, b.rows(), b.columns()) / 4) {
  auto work = [&](int t, int n_threads) {
    const Range panels = SplitRange(kernels::PaddedRows(n_) / kernels::kPanelRows, 1, t, n_threads);
    Matrix dense(1, kernels::kPanelRows * k_);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      const int64_t first = p * kernels::kPanelRows, end = std::min<int64_t>(first + kernels::kPanelRows, n_);
      for (int64_t r = first; r < end; ++r) std::memcpy(dense.Row(0) + (r - first) * k_, b.Row(r), static_cast<size_t>(k_) * sizeof(float));
      kernels::PackFloat(kernels::PackedKind::kF32, k_, first, end, dense.Row(0), reinterpret_cast<uint8_t*>(packed_.Row(0)));
    }
  };
  machine.team->Run(work);
}

void Multiplier::Multiply(const Matrix& a, Matrix& c, Sum sum, Part part) const {
  SLM_ASSERT(a.columns() == k_ && c.rows() == a.rows() && c.columns() == n_);
  const auto kernel = kernels::MatMulFloat(kernels::PackedKind::kF32, machine_.isa);
  const int64_t blocks = (a.rows() + kBlockRows - 1) / kBlockRows, panels = kernels::PaddedRows(n_) / kernels::kPanelRows;
  auto work = [&](int t, int n_threads) {
    for (int64_t b = t; b < blocks; b += n_threads) {
      kernels::MatMulArgs args;
      args.w = reinterpret_cast<const uint8_t*>(packed_.Row(0));
      args.panel_bytes = kernels::PanelBytes(kernels::PackedKind::kF32, k_);
      args.k = static_cast<int>(kernels::PaddedK(k_));
      args.m = static_cast<int>(std::min(kBlockRows, a.rows() - b * kBlockRows));
      args.x = a.Row(b * kBlockRows);
      args.x_stride = a.stride();
      args.out = c.Row(b * kBlockRows);
      args.out_stride = c.stride();
      args.accumulate = sum == Sum::kAdd;
      args.panel_begin = part == Part::kUpper ? static_cast<int>(b * kBlockRows / kernels::kPanelRows) : 0;
      args.panel_end = static_cast<int>(panels);
      if (args.panel_begin < args.panel_end) kernel.fn(args);
    }
  };
  machine_.team->Run(work);
}

}  // namespace slm::quant
