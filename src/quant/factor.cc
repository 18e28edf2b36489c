// See factor.h.
#include "quant/factor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/update_f64/contract.h"

namespace slm::quant {
namespace {

constexpr int64_t kStep = 96;   // columns that are factored at a time
constexpr int64_t kRows = 128;  // of the rest that a thread updates at a time
constexpr double kLeastPivot = 1e-12;
constexpr int64_t kColumns = kernels::kUpdateColumns;

class Factorization {
 public:
  Factorization(double* a, int64_t n, int64_t stride, Isa isa)
      : a_(a), n_(n), stride_(stride), kernel_(kernels::UpdateF64(isa)), packed_(static_cast<size_t>((n + kColumns) * kStep)) {
    for (int64_t i = 0; i < n; ++i) least_.push_back(kLeastPivot * std::abs(Row(i)[i]));
  }

  bool Run(ThreadTeam& team) {
    auto work = [this, &team](int thread, int n_threads) {
      std::vector<double> rows(static_cast<size_t>(kRows * kStep));
      for (int64_t at = 0; at < n_; at += kStep) {
        const int64_t width = std::min(kStep, n_ - at);
        if (thread == 0) ok_ = FactorDiagonal(at, width);
        team.Barrier(thread);
        if (!ok_) return;
        SolveRows(at, width, thread, n_threads);
        team.Barrier(thread);
        for (int64_t row = at + width + thread * kRows; row < n_; row += n_threads * kRows) UpdateRows(at, width, row, rows.data());
        team.Barrier(thread);
      }
    };
    team.Run(work);
    return ok_;
  }

 private:
  double* Row(int64_t i) { return a_ + i * stride_; }

  bool FactorDiagonal(int64_t at, int64_t width) {
    for (int64_t j = 0; j < width; ++j) {
      double* row = Row(at + j) + at;
      double pivot = row[j];
      for (int64_t k = 0; k < j; ++k) pivot -= row[k] * row[k];
      if (!(pivot > least_[static_cast<size_t>(at + j)]) || !std::isfinite(pivot)) return false;
      row[j] = std::sqrt(pivot);
      for (int64_t i = j + 1; i < width; ++i) {
        double* below = Row(at + i) + at;
        double sum = below[j];
        for (int64_t k = 0; k < j; ++k) sum -= below[k] * row[k];
        below[j] = sum / row[j];
      }
    }
    for (int64_t j = 0; j < width; ++j)
      for (int64_t i = j; i < width; ++i) columns_[j][i] = Row(at + i)[at + j];
    return true;
  }

  // Rows below the diagonal block times the inverse of its transpose, and packed for the update.
  void SolveRows(int64_t at, int64_t width, int thread, int n_threads) {
    const int64_t first = at + width, rest = n_ - first;
    const Range mine = SplitRange(rest, kColumns, thread, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      double* row = Row(first + i) + at;
      for (int64_t j = 0; j < width; ++j) {
        const double v = row[j] /= columns_[j][j];
        for (int64_t k = j + 1; k < width; ++k) row[k] -= v * columns_[j][k];
      }
      double* to = packed_.data() + i / kColumns * width * kColumns + i % kColumns;
      for (int64_t j = 0; j < width; ++j) to[j * kColumns] = row[j];
    }
  }

  // `copy` [kRows][kStep]: the rows close together, since those of the matrix can all fall on the same lines of the cache.
  void UpdateRows(int64_t at, int64_t width, int64_t row, double* copy) {
    const int64_t first = at + width, rows = std::min(kRows, n_ - row), columns = row + rows - first;
    const int64_t whole = columns / kColumns;
    for (int64_t i = 0; i < rows; ++i) std::copy(Row(row + i) + at, Row(row + i) + at + width, copy + i * kStep);
    kernels::UpdateF64Args args{.c = Row(row) + first,
                                .c_stride = stride_,
                                .a = copy,
                                .a_stride = kStep,
                                .b = packed_.data(),
                                .m = static_cast<int>(rows),
                                .panels = static_cast<int>(whole),
                                .k = static_cast<int>(width)};
    if (whole > 0) kernel_.fn(args);
    const double* last = packed_.data() + whole * width * kColumns;
    for (int64_t j = whole * kColumns; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < width; ++k) sum += Row(row + i)[at + k] * last[k * kColumns + j - whole * kColumns];
        Row(row + i)[first + j] -= sum;
      }
  }

  double* const a_;
  const int64_t n_, stride_;
  const kernels::UpdateF64Kernel kernel_;
  std::vector<double> least_;          // pivots
  std::vector<double> packed_;         // the solved rows: [rest / 8][width][8]
  double columns_[kStep][kStep] = {};  // of the factored diagonal block, transposed
  bool ok_ = true;
};

}  // namespace

bool FactorLower(double* a, int64_t n, int64_t stride, Isa isa, ThreadTeam& team) { return Factorization(a, n, stride, isa).Run(team); }

}  // namespace slm::quant
