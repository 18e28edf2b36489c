// See activation_range.h.
#include "quant/activation_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace slm::quant {
namespace {

constexpr int kBins = ValueHistogram::kBins;
constexpr int kShrinks = 100;        // ranges that kMse tries, from the extremes down
constexpr int kEntropyLevels = 128;  // of |x|, as the calibrators have it

// Cuts the same share of the count from both ends, at the borders of bins.
ValueRange Percentile(const ValueHistogram& h, const RangeOptions& options) {
  const double width = h.bin_width(), total = static_cast<double>(h.count());
  const double cut = (100 - options.percentile) / 100 * total / (options.symmetric ? 1 : 2);
  const ValueRange all = h.extremes();
  double above = 0, below = 0;
  int high = kBins, low = -kBins;
  if (options.symmetric) {
    while (high > 1 && above + static_cast<double>(h.at(high - 1) + h.at(-high)) <= cut) {
      --high;
      above += static_cast<double>(h.at(high) + h.at(-high - 1));
    }
    const float most = std::min(static_cast<float>(high * width), std::max(-all.low, all.high));
    return {-most, most};
  }
  while (high > 0 && above + static_cast<double>(h.at(high - 1)) <= cut) above += static_cast<double>(h.at(--high));
  while (low < 0 && below + static_cast<double>(h.at(low)) <= cut) below += static_cast<double>(h.at(low++));
  return {std::max(static_cast<float>(low * width), all.low), std::min(static_cast<float>(high * width), all.high)};
}

ValueRange LeastError(const ValueHistogram& h, const RangeOptions& options, const ValueRange& all) {
  ValueRange best = all;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kShrinks; ++i) {
    const float share = 1 - static_cast<float>(i) / kShrinks;
    const ValueRange range{all.low * share, all.high * share};
    const double error = RangeError(h, range, options.bits);
    if (error >= least) continue;
    least = error;
    best = range;
  }
  return best;
}

// Kullback-Leibler divergence of the counts of |x| up to `n` bins, what lies beyond added to the last, from the same in kEntropyLevels
// levels that are spread over the bins which were not empty.
double Divergence(const std::vector<double>& counts, int n, double beyond) {
  double total = beyond;
  for (int i = 0; i < n; ++i) total += counts[static_cast<size_t>(i)];
  double sum = 0, spread_total = 0;
  std::vector<double> spread(static_cast<size_t>(n));
  for (int level = 0; level < kEntropyLevels; ++level) {
    const int begin = level * n / kEntropyLevels, end = (level + 1) * n / kEntropyLevels;
    double mass = 0;
    int filled = 0;
    for (int i = begin; i < end; ++i) {
      mass += counts[static_cast<size_t>(i)];
      filled += counts[static_cast<size_t>(i)] > 0;
    }
    for (int i = begin; i < end; ++i)
      if (counts[static_cast<size_t>(i)] > 0) spread[static_cast<size_t>(i)] = mass / filled;
    spread_total += mass;
  }
  constexpr double kFloor = 1e-9;  // a bin that only the cut values fill would make the divergence infinite
  for (int i = 0; i < n; ++i) {
    const double p = (counts[static_cast<size_t>(i)] + (i == n - 1 ? beyond : 0)) / total;
    if (p > 0) sum += p * std::log(p / std::max(spread_total > 0 ? spread[static_cast<size_t>(i)] / spread_total : 0.0, kFloor));
  }
  return sum;
}

float LeastDivergence(const ValueHistogram& h, const ValueRange& all) {
  std::vector<double> counts(static_cast<size_t>(kBins));
  for (int i = 0; i < kBins; ++i) counts[static_cast<size_t>(i)] = static_cast<double>(h.at(i) + h.at(-i - 1));
  int last = kBins;
  while (last > 1 && counts[static_cast<size_t>(last - 1)] == 0) --last;
  const float most = std::max(-all.low, all.high);
  int best = last;
  double least = std::numeric_limits<double>::infinity(), beyond = 0;
  for (int n = last; n >= kEntropyLevels; --n) {
    const double divergence = Divergence(counts, n, beyond);
    if (divergence < least) {
      least = divergence;
      best = n;
    }
    beyond += counts[static_cast<size_t>(n - 1)];
  }
  return std::min(static_cast<float>(best * h.bin_width()), most);
}

}  // namespace

double ValueHistogram::bin_width() const { return std::ldexp(1.0, exponent_) / kBins; }

void ValueHistogram::Double() {
  std::vector<uint64_t> wider(2 * kBins);
  for (int i = -kBins; i < kBins; ++i) wider[static_cast<size_t>((i >> 1) + kBins)] += at(i);
  counts_ = std::move(wider);
  ++exponent_;
}

void ValueHistogram::Add(std::span<const float> values) {
  double limit = std::ldexp(1.0, exponent_), per_width = kBins / limit;
  for (const float v : values) {
    SLM_ASSERT(std::isfinite(v));
    if (static_cast<double>(std::abs(v)) >= limit) {
      if (count_ == 0) exponent_ = std::ilogb(v) + 1;
      while (std::ilogb(v) >= exponent_) Double();
      limit = std::ldexp(1.0, exponent_);
      per_width = kBins / limit;
    }
    low_ = count_ == 0 ? v : std::min(low_, v);
    high_ = count_ == 0 ? v : std::max(high_, v);
    ++count_;
    ++counts_[static_cast<size_t>(static_cast<int>(std::floor(static_cast<double>(v) * per_width)) + kBins)];
  }
}

void ValueHistogram::Merge(const ValueHistogram& other) {
  if (other.count_ == 0) return;
  ValueHistogram more = other;
  if (count_ == 0) {
    *this = more;
    return;
  }
  while (exponent_ < more.exponent_) Double();
  while (more.exponent_ < exponent_) more.Double();
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += more.counts_[i];
  low_ = std::min(low_, more.low_);
  high_ = std::max(high_, more.high_);
  count_ += more.count_;
}

ValueRange ChooseRange(const ValueHistogram& histogram, const RangeOptions& options) {
  SLM_ASSERT(options.bits >= 2 && options.bits <= 16 && options.percentile > 0 && options.percentile <= 100);
  if (histogram.count() == 0) return {};
  ValueRange all = histogram.extremes();
  all = {std::min(all.low, 0.0f), std::max(all.high, 0.0f)};
  if (options.symmetric) all = {-std::max(-all.low, all.high), std::max(-all.low, all.high)};
  switch (options.rule) {
    case RangeRule::kMinMax: return all;
    case RangeRule::kMse: return LeastError(histogram, options, all);
    case RangeRule::kEntropy: {
      const float most = LeastDivergence(histogram, all);
      return {std::max(all.low, -most), std::min(all.high, most)};
    }
    case RangeRule::kPercentile: {
      const ValueRange r = Percentile(histogram, options);
      return {std::min(r.low, 0.0f), std::max(r.high, 0.0f)};
    }
  }
  SLM_ASSERT(false);
}

double RangeError(const ValueHistogram& histogram, const ValueRange& range, int bits) {
  const double low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  const double step = (high - low) / ((1 << bits) - 1), width = histogram.bin_width();
  double sum = 0;
  for (int i = -kBins; i < kBins; ++i) {
    const auto n = static_cast<double>(histogram.at(i));
    if (n == 0) continue;
    const double v = (i + 0.5) * width, cut = std::clamp(v, low, high);
    const double rounded = step > 0 ? low + std::nearbyint((cut - low) / step) * step : low;
    sum += n * (v - rounded) * (v - rounded);
  }
  return histogram.count() > 0 ? sum / static_cast<double>(histogram.count()) : 0;
}

}  // namespace slm::quant
