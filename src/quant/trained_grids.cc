// See trained_grids.h.
#include "quant/trained_grids.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "quant/lattice.h"

namespace slm::quant {
namespace {

constexpr int64_t kGroup = 16, kSampledRows = 64;

bool IsTernary(DType dtype) { return dtype == DType::kTQ1_0 || dtype == DType::kTQ2_0; }

}  // namespace

bool LiesOnLattices(const model::Tensor& t) {
  if (t.dims.size() != 2 || t.grouped || !t.foreign_type.empty()) return false;
  const int64_t rows = t.dims[0], width = t.dims[1], n = std::min(rows, kSampledRows);
  std::vector<float> row(static_cast<size_t>(width));
  int64_t groups = 0, telling = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = (2 * i + 1) * rows / (2 * n);
    model::ReadRows(t, at, at + 1, row.data());
    for (int64_t k = 0; k < width; k += kGroup) {
      const std::span<const float> w(row.data() + k, static_cast<size_t>(std::min(kGroup, width - k)));
      ++groups;
      if (std::all_of(w.begin(), w.end(), [&](float v) { return v == w[0]; })) continue;
      if (!LatticeOf(w)) return false;
      ++telling;
    }
  }
  return 2 * telling > groups;
}

bool KeepsValues(DType from, DType to, const Recipe& recipe) {
  if (!IsTernary(from) || recipe.search != Search::kRefit) return false;
  return to == DType::kQ4_0 || to == DType::kQ4_1 || to == DType::kQ5_0 || to == DType::kQ5_1 || to == DType::kQ8_0;
}

Result<std::string> NoteLattices(const model::Model& m, std::span<const model::Tensor* const> matrices, const Recipe& recipe,
                                 SourceTypes source) {
  int64_t all = 0, on = 0;
  size_t n = 0;
  for (const model::Tensor* t : matrices) {
    all += t->n_values();
    const bool floats = t->foreign_type.empty() && !t->grouped && Info(t->dtype).block == 1;
    if (!(floats ? LiesOnLattices(*t) : t->foreign_type.empty() && IsTernary(t->dtype))) continue;
    on += t->n_values();
    ++n;
  }
  if (2 * on <= all || all == 0) return std::string();
  const std::string what = fmt::format("the weights of {} of {} matrices lie on grids of at most 16 values already", n, matrices.size());
  if (recipe.calibrated() && source == SourceTypes::kFloatOnly)
    return Error(Code::kUnsupported,
                 fmt::format("{}: --recipe {}: {}: calibration would move them off what they were trained for", m.path, recipe.name, what),
                 "leave --recipe out: the search keeps such grids exactly in types that hold them (q4_0, q4_1, q8_0, packed folders); "
                 "--requantize calibrates all the same");
  return what + ": the largest relative error below is 0 where the type holds them exactly";
}

}  // namespace slm::quant
