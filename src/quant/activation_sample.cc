// See activation_sample.h.
#include "quant/activation_sample.h"

#include <algorithm>
#include <cmath>

#include "quant/statistics.h"

namespace slm::quant {

void ActivationSample::Add(const float* rows, int64_t n) {
  const std::vector<float> weights = TokenWeights(rows, n, width_, most_energy_);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < n; ++i) {
    if (weights[static_cast<size_t>(i)] < 1) {
      ++left_out_;
      continue;
    }
    kept.push_back(i);
    for (int64_t j = 0; j < width_; ++j) {
      float& most = most_[static_cast<size_t>(j)];
      most = std::max(most, std::abs(rows[i * width_ + j]));
    }
  }
  const auto all = static_cast<int64_t>(kept.size()), few = std::min(all, per_sequence_);
  for (int64_t i = 0; i < few; ++i) {
    const float* row = rows + kept[static_cast<size_t>(i * all / few)] * width_;
    rows_.insert(rows_.end(), row, row + width_);
  }
}

std::vector<float> ActivationSample::Some(int64_t n) const {
  const int64_t all = tokens(), few = std::min(all, n);
  std::vector<float> out;
  for (int64_t i = 0; i < few; ++i) {
    const float* row = rows_.data() + i * all / few * width_;
    out.insert(out.end(), row, row + width_);
  }
  return out;
}

ValueRange ActivationSample::RangeOf(std::span<const float> fold, const RangeOptions& options) const {
  const auto n = static_cast<size_t>(width_);
  const std::vector<float>& from = options.rule == RangeRule::kMinMax ? most_ : rows_;
  std::vector<float> row(n);
  ValueHistogram histogram;
  for (size_t i = 0; i < from.size(); i += n) {
    for (size_t j = 0; j < n; ++j) row[j] = fold.empty() ? from[i + j] : from[i + j] / fold[j];
    histogram.Add(row);
  }
  RangeOptions symmetric = options;
  symmetric.symmetric = true;
  return ChooseRange(histogram, symmetric);
}

}  // namespace slm::quant
