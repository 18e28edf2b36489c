// From the values of an activation over calibration text to the range that a static integer grid covers.
//
// Sources: the calibrators of ONNX Runtime and TensorRT (min-max, percentile, entropy over 2048 bins), and least mean square error as in
// AIMET. Tokens that act as sinks belong left out of what is added: one of them can be a thousand times the rest (arXiv 2402.17762).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/calibrated.h"

namespace slm::quant {

using model::ValueRange;

// Counts over bins of equal width, symmetric around 0. The range doubles when a value lies beyond it: pairs of bins become one, so the
// counts do not depend on the order of what is added, but for the exact extremes nothing is lost.
class ValueHistogram {
 public:
  static constexpr int kBins = 2048;        // on each side of 0
  void Add(std::span<const float> values);  // finite
  void Merge(const ValueHistogram& other);

  uint64_t count() const { return count_; }
  ValueRange extremes() const { return {low_, high_}; }
  double bin_width() const;
  // Bin i covers [i, i + 1) bin widths, i from -kBins to kBins - 1.
  uint64_t at(int i) const { return counts_[static_cast<size_t>(i + kBins)]; }

 private:
  void Double();
  std::vector<uint64_t> counts_ = std::vector<uint64_t>(2 * kBins);
  int exponent_ = -126;  // the bins reach from -2^exponent to 2^exponent
  uint64_t count_ = 0;
  float low_ = 0, high_ = 0;
};

enum class RangeRule : uint8_t { kMinMax, kPercentile, kMse, kEntropy };

struct RangeOptions {
  RangeRule rule = RangeRule::kMinMax;
  double percentile = 99.99;  // of the values that the range holds, cut evenly by the count above and below: 99.9 to 99.999
  int bits = 8;
  bool symmetric = false;  // low = -high
};

// The range; it always holds 0. An empty histogram: {0, 0}. Pure.
ValueRange ChooseRange(const ValueHistogram& histogram, const RangeOptions& options);

// Mean square error of rounding the histogram's values (their bins' middles) to 2^bits steps over `range`, values beyond it cut.
double RangeError(const ValueHistogram& histogram, const ValueRange& range, int bits);

}  // namespace slm::quant
