// See statistics.h. A sequence is one product X^T X of f32 sums over its tokens in order, added to what was there: the same bits for any
// number of threads, and errors that grow with the number of sequences only.
#include "quant/statistics.h"

#include <algorithm>
#include <cmath>

namespace slm::quant {

InputStatistics::InputStatistics(const Machine& machine, int64_t width, double most_energy)
    : machine_(machine), most_energy_(most_energy), second_(width, width), absolute_(static_cast<size_t>(width), 0.0) {}

std::vector<float> TokenWeights(const float* rows, int64_t n, int64_t width, double most_energy) {
  std::vector<float> weights(static_cast<size_t>(n), 1.0f);
  if (most_energy <= 0) return weights;
  std::vector<double> energy(static_cast<size_t>(n), 0.0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) {
      const auto x = static_cast<double>(rows[i * width + j]);
      energy[static_cast<size_t>(i)] += x * x;
    }
  std::vector<double> sorted = energy;
  std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.end());
  const double most = most_energy * sorted[static_cast<size_t>(n / 2)];
  for (size_t i = 0; i < energy.size(); ++i)
    if (energy[i] > most) weights[i] = static_cast<float>(most / energy[i]);
  return weights;
}

void InputStatistics::Add(const float* rows, int64_t n) {
  const std::vector<float> weights = TokenWeights(rows, n, width(), most_energy_);
  capped_ += std::count_if(weights.begin(), weights.end(), [](float w) { return w < 1; });
  Matrix columns(width(), n);  // X^T, each token times the root of its weight
  auto transpose = [&](int t, int n_threads) {
    const Range mine = SplitRange(width(), 16, t, n_threads);
    for (int64_t i = 0; i < n; ++i) {
      const float root = std::sqrt(weights[static_cast<size_t>(i)]);
      for (int64_t j = mine.begin; j < mine.end; ++j) columns.Row(j)[i] = rows[i * width() + j] * root;
    }
    for (int64_t j = mine.begin; j < mine.end; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        sum += static_cast<double>(weights[static_cast<size_t>(i)]) * std::abs(static_cast<double>(rows[i * width() + j]));
      absolute_[static_cast<size_t>(j)] += sum;
    }
  };
  machine_.team->Run(transpose);
  Multiplier(machine_, columns).Multiply(columns, second_, Multiplier::Sum::kAdd, Multiplier::Part::kUpper);
  for (const float w : weights) weight_ += static_cast<double>(w);
  tokens_ += n;
}

InputStatistics InputStatistics::Leading(int64_t width) const {
  InputStatistics s(machine_, width, most_energy_);
  for (int64_t i = 0; i < width; ++i) std::copy(second_.Row(i), second_.Row(i) + width, s.second_.Row(i));
  s.mean_square_.assign(mean_square_.begin(), mean_square_.begin() + width);
  s.mean_absolute_.assign(mean_absolute_.begin(), mean_absolute_.begin() + width);
  s.tokens_ = tokens_;
  s.capped_ = capped_;
  return s;
}

void InputStatistics::Finish() {
  const auto scale = static_cast<float>(weight_ > 0 ? 1 / weight_ : 0);
  for (int64_t i = 0; i < width(); ++i)
    for (int64_t j = i; j < width(); ++j) second_.Row(j)[i] = second_.Row(i)[j] = second_.Row(i)[j] * scale;
  mean_square_.resize(absolute_.size());
  mean_absolute_.resize(absolute_.size());
  for (size_t j = 0; j < absolute_.size(); ++j) {
    mean_square_[j] = second_.Row(static_cast<int64_t>(j))[j];
    mean_absolute_[j] = static_cast<float>(weight_ > 0 ? absolute_[j] / weight_ : 0);
  }
}

}  // namespace slm::quant
