// See smooth.h.
#include "quant/smooth.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace slm::quant {
namespace {
using backend::InputGrid;
using backend::InputRounding;

constexpr double kLeast = 1e-5, kMost = 1e5;

// Channels with the same number get their largest value.
void TieLargest(std::span<const int32_t> tied, std::vector<float>* v) {
  if (tied.empty()) return;
  std::vector<float> most(v->size(), 0.0f);
  for (size_t j = 0; j < v->size(); ++j) {
    float& m = most[static_cast<size_t>(tied[j])];
    m = std::max(m, (*v)[j]);
  }
  for (size_t j = 0; j < v->size(); ++j) (*v)[j] = most[static_cast<size_t>(tied[j])];
}

class Trial {
 public:
  Trial(std::span<const float> x, std::span<const float> w, int64_t width, const SmoothOptions& options)
      : x_(x), w_(w), n_(static_cast<size_t>(width)), options_(options), exact_(Product(x, w)) {}

  // Relative mean square error with the channels divided by `scale` (empty: as they are).
  double ErrorOf(std::span<const float> scale) const {
    std::vector<float> x(x_.begin(), x_.end()), w(w_.begin(), w_.end());
    for (size_t i = 0; i < x.size() && !scale.empty(); ++i) x[i] /= scale[i % n_];
    for (size_t i = 0; i < w.size() && !scale.empty(); ++i) w[i] *= scale[i % n_];
    const InputGrid weight_grid{.rounding = InputRounding::kPerToken, .bits = options_.weight_bits};  // a row of weights alike
    for (size_t i = 0; i < w.size(); i += n_) RoundInput(weight_grid, {w.data() + i, n_});
    InputGrid grid{.rounding = options_.inputs, .bits = options_.activation_bits};
    if (grid.rounding == InputRounding::kStatic) {
      ValueHistogram histogram;
      histogram.Add(x);
      RangeOptions range = options_.range;
      range.bits = options_.activation_bits;
      range.symmetric = true;
      grid.most = ChooseRange(histogram, range).high;
    }
    for (size_t i = 0; i < x.size(); i += n_) RoundInput(grid, {x.data() + i, n_});
    const std::vector<double> product = Product(x, w);
    double lost = 0, power = 0;
    for (size_t i = 0; i < product.size(); ++i) {
      lost += (product[i] - exact_[i]) * (product[i] - exact_[i]);
      power += exact_[i] * exact_[i];
    }
    return power > 0 ? lost / power : 0;
  }

 private:
  std::vector<double> Product(std::span<const float> x, std::span<const float> w) const {
    std::vector<double> out;
    for (size_t i = 0; i < x.size(); i += n_)
      for (size_t j = 0; j < w.size(); j += n_) {
        double sum = 0;
        for (size_t k = 0; k < n_; ++k) sum += static_cast<double>(x[i + k]) * static_cast<double>(w[j + k]);
        out.push_back(sum);
      }
    return out;
  }

  const std::span<const float> x_, w_;
  const size_t n_;
  const SmoothOptions& options_;
  const std::vector<double> exact_;
};

}  // namespace

std::vector<float> SmoothFactors(std::span<const float> x, std::span<const float> w, double alpha) {
  SLM_ASSERT(x.size() == w.size());
  std::vector<float> s(x.size(), 1.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(x[i] > 0) || !(w[i] > 0)) continue;
    const double v = std::pow(static_cast<double>(x[i]), alpha) / std::pow(static_cast<double>(w[i]), 1 - alpha);
    s[i] = static_cast<float>(std::clamp(v, kLeast, kMost));
  }
  return s;
}

Smoothing SearchSmoothing(std::span<const float> x, std::span<const float> w, int64_t width, std::span<const float> most_x,
                          std::span<const float> most_w, const SmoothOptions& options) {
  SLM_ASSERT(width > 0 && x.size() % static_cast<size_t>(width) == 0 && w.size() % static_cast<size_t>(width) == 0);
  SLM_ASSERT(most_x.size() == static_cast<size_t>(width) && most_w.size() == static_cast<size_t>(width));
  const Trial trial(x, w, width, options);
  Smoothing best;
  best.error = best.identity_error = trial.ErrorOf({});
  for (int i = 1; i < options.points; ++i) {
    const double alpha = static_cast<double>(i) / options.points;
    std::vector<float> scale = SmoothFactors(most_x, most_w, alpha);
    const double error = trial.ErrorOf(scale);
    if (error >= best.error) continue;
    best.error = error;
    best.alpha = alpha;
    best.scale = std::move(scale);
  }
  return best;
}

Smoothing SmoothMembers(const ActivationSample& sample, std::span<const FoldMember> members, std::span<const int32_t> tied,
                        const SmoothOptions& options) {
  constexpr int64_t kTokens = 64, kRows = 64;  // an exponent is a product of these
  std::vector<float> most_x = sample.most(), most_w(most_x.size(), 0.0f), rows;
  const size_t n = most_x.size();
  int64_t all = 0;
  for (const FoldMember& m : members) all += m.rows;
  int64_t before = 0;
  for (const FoldMember& m : members) {
    for (int64_t r = 0; r < m.rows; ++r, ++before) {
      const std::span<const float> row = m.values.subspan(static_cast<size_t>(r) * n, n);
      for (size_t j = 0; j < n; ++j) most_w[j] = std::max(most_w[j], std::abs(row[j]));
      if (before * kRows / all != (before + 1) * kRows / all) rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  TieLargest(tied, &most_x);
  TieLargest(tied, &most_w);
  return SearchSmoothing(sample.Some(kTokens), rows, static_cast<int64_t>(n), most_x, most_w, options);
}

}  // namespace slm::quant
