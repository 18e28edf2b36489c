// Rows of an activation that stand for all of a calibration text, for who chooses how it is rounded: smoothing factors (smooth.h) and
// static ranges (activation_range.h). Tokens with very much energy, which act as sinks, are left out.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "quant/activation_range.h"

namespace slm::quant {

class ActivationSample {
 public:
  // `most_energy` as InputStatistics has it; 0: no token is left out. At most `per_sequence` rows of a sequence are kept.
  ActivationSample(int64_t width, double most_energy, int64_t per_sequence)
      : width_(width), most_energy_(most_energy), per_sequence_(per_sequence), most_(static_cast<size_t>(width), 0.0f) {}

  // The rows of one sequence, [n][width].
  void Add(const float* rows, int64_t n);

  // Rows, evenly spaced in their sequences, [tokens][width].
  std::span<const float> rows() const { return rows_; }
  int64_t tokens() const { return static_cast<int64_t>(rows_.size()) / width_; }
  // At most `n` of them, evenly spaced.
  std::vector<float> Some(int64_t n) const;
  // The largest |x| of each channel over all tokens but those left out, [width].
  const std::vector<float>& most() const { return most_; }
  int64_t left_out() const { return left_out_; }

  // The range for the rows with their channels divided by `fold` [width] (empty: 1); of kMinMax over all tokens. Symmetric.
  ValueRange RangeOf(std::span<const float> fold, const RangeOptions& options) const;

 private:
  const int64_t width_;
  const double most_energy_;
  const int64_t per_sequence_;
  std::vector<float> rows_, most_;
  int64_t left_out_ = 0;
};

}  // namespace slm::quant
