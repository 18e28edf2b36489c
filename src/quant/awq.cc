#include "quant/awq.h"

#include <algorithm>
#include <cmath>

namespace slm::quant {
namespace {

constexpr int64_t kGroup = 32;

// Means over the channels that must have one factor.
void Tie(std::span<const int32_t> tied, std::vector<float>* v) {
  if (tied.empty()) return;
  const auto classes = static_cast<size_t>(*std::max_element(tied.begin(), tied.end())) + 1;
  std::vector<double> sum(classes, 0.0), count(classes, 0.0);
  for (size_t i = 0; i < v->size(); ++i) {
    sum[static_cast<size_t>(tied[i])] += static_cast<double>((*v)[i]);
    count[static_cast<size_t>(tied[i])] += 1;
  }
  for (size_t i = 0; i < v->size(); ++i)
    (*v)[i] = static_cast<float>(sum[static_cast<size_t>(tied[i])] / count[static_cast<size_t>(tied[i])]);
}

// Rows of the members that the error is measured on.
class Sample {
 public:
  Sample(std::span<const FoldMember> members, int64_t width, int64_t max_rows) {
    int64_t all = 0;
    for (const FoldMember& m : members) all += m.rows;
    const int64_t n = std::min(all, std::max<int64_t>(max_rows, 1));
    rows_ = Matrix(n, width);
    forms_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      int64_t row = (2 * i + 1) * all / (2 * n);
      size_t member = 0;
      while (row >= members[member].rows) row -= members[member++].rows;
      const auto values = members[member].values.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
      std::copy(values.begin(), values.end(), rows_.Row(i));
      forms_[static_cast<size_t>(i)] = members[member].form;
    }
  }
  const Matrix& rows() const { return rows_; }
  const StoredForm& form(int64_t i) const { return forms_[static_cast<size_t>(i)]; }

 private:
  Matrix rows_;
  std::vector<StoredForm> forms_;
};

class Judge {
 public:
  Judge(const Machine& machine, const Sample& sample, const InputStatistics& input, Search search)
      : machine_(machine),
        sample_(sample),
        input_(input),
        search_(search),
        second_(machine, input.second()),
        change_(sample.rows().rows(), input.width()),
        product_(sample.rows().rows(), input.width()) {}

  // tr(D E[x x^T] D^T); `scale` empty: 1.
  double Error(const std::vector<float>& scale) {
    auto round = [&](int t, int n_threads) {
      const Range mine = SplitRange(sample_.rows().rows(), 1, t, n_threads);
      const auto width = static_cast<size_t>(input_.width());
      std::vector<float> scaled(width), weight(width), stored(width);
      for (size_t j = 0; j < width; ++j) {
        const float s = scale.empty() ? 1.0f : scale[j];
        weight[j] = input_.mean_square()[j] / (s * s);
      }
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const float* w = sample_.rows().Row(i);
        for (size_t j = 0; j < width; ++j) scaled[j] = scale.empty() ? w[j] : w[j] * scale[j];
        StoreRow(sample_.form(i), search_, scaled, weight.data(), stored.data());
        for (size_t j = 0; j < width; ++j) change_.Row(i)[j] = (scale.empty() ? stored[j] : stored[j] / scale[j]) - w[j];
      }
    };
    machine_.team->Run(round);
    second_.Multiply(change_, product_);
    double sum = 0;
    for (int64_t i = 0; i < change_.rows(); ++i)
      for (int64_t j = 0; j < change_.columns(); ++j)
        sum += static_cast<double>(change_.Row(i)[j]) * static_cast<double>(product_.Row(i)[j]);
    return sum;
  }

 private:
  const Machine machine_;
  const Sample& sample_;
  const InputStatistics& input_;
  const Search search_;
  const Multiplier second_;
  Matrix change_, product_;
};

}  // namespace

std::vector<float> RelativeMagnitudes(std::span<const FoldMember> members, int64_t width, int64_t group) {
  std::vector<double> sum(static_cast<size_t>(width), 0.0);
  int64_t rows = 0;
  for (const FoldMember& m : members) {
    for (int64_t r = 0; r < m.rows; ++r) {
      const float* w = m.values.data() + r * width;
      for (int64_t b = 0; b < width; b += group) {
        const int64_t end = std::min(b + group, width);
        float most = 0;
        for (int64_t j = b; j < end; ++j) most = std::max(most, std::abs(w[j]));
        for (int64_t j = b; j < end; ++j) sum[static_cast<size_t>(j)] += static_cast<double>(std::abs(w[j]) / (most + 1e-6f));
      }
    }
    rows += m.rows;
  }
  std::vector<float> mean(sum.size());
  for (size_t j = 0; j < sum.size(); ++j) mean[j] = static_cast<float>(sum[j] / static_cast<double>(std::max<int64_t>(rows, 1)));
  return mean;
}

std::vector<float> FoldFactors(std::span<const float> x, std::span<const float> w, double exponent) {
  std::vector<float> scale(x.size());
  double low = 0, high = 0;
  for (size_t j = 0; j < x.size(); ++j) {
    const double above = std::pow(static_cast<double>(x[j]), exponent);
    const double below = w.empty() ? 1 : std::pow(static_cast<double>(w[j]), 1 - exponent) + 1e-4;
    const double s = std::max(above / below, 1e-4);
    scale[j] = static_cast<float>(s);
    low = j == 0 ? s : std::min(low, s);
    high = std::max(high, s);
  }
  const double middle = std::sqrt(low * high);
  for (float& s : scale) {
    s = static_cast<float>(static_cast<double>(s) / middle);
    if (!std::isfinite(s) || s <= 0) s = 1;
  }
  return scale;
}

Fold SearchFold(const Machine& machine, std::span<const FoldMember> members, const InputStatistics& input, const FoldOptions& options) {
  const Sample sample(members, input.width(), options.max_rows);
  Judge judge(machine, sample, input, options.search);
  Fold best;
  best.error = best.identity_error = judge.Error({});
  std::vector<float> x = input.mean_absolute(), w = RelativeMagnitudes(members, input.width(), kGroup);
  Tie(options.tied, &x);
  Tie(options.tied, &w);
  for (int i = 0; i < options.points; ++i) {
    const double exponent = static_cast<double>(i) / options.points;
    std::vector<float> scale = FoldFactors(x, w, exponent);
    const double error = judge.Error(scale);
    if (!(error < best.error)) continue;
    best.error = error;
    best.exponent = exponent;
    best.scale = std::move(scale);
  }
  return best;
}

}  // namespace slm::quant
