// What calibration remembers of a value that matrices read: second moments of its channels, guarded against single tokens.
//
// Why guarded: a few tokens (the first one, delimiters) can have a thousand times the energy of the others ("Massive Activations in
// Large Language Models", arXiv 2402.17762). Sums of squares then describe these tokens only, and whatever is fitted to them spoils all
// others. A token counts as if its energy were at most `most_energy` times the median of its sequence.
#pragma once
#include <cstdint>
#include <vector>

#include "quant/matrix.h"

namespace slm::quant {

// What each of n tokens [n][width] of a sequence counts: 1, or less where its energy is above `most_energy` medians (0: no limit).
std::vector<float> TokenWeights(const float* rows, int64_t n, int64_t width, double most_energy);

class InputStatistics {
 public:
  // `width` channels; `most_energy` 0: tokens are taken as they are.
  InputStatistics(const Machine& machine, int64_t width, double most_energy);

  // The rows of one sequence, [n][width].
  void Add(const float* rows, int64_t n);
  // After the last Add: divides by the tokens' weights.
  void Finish();

  // The same of the first `width` channels alone, after Finish.
  InputStatistics Leading(int64_t width) const;

  int64_t width() const { return second_.columns(); }
  // E[x x^T] [width, width], symmetric.
  const Matrix& second() const { return second_; }
  // E[x^2] and E[|x|] by channel.
  const std::vector<float>& mean_square() const { return mean_square_; }
  const std::vector<float>& mean_absolute() const { return mean_absolute_; }
  int64_t tokens() const { return tokens_; }
  int64_t capped() const { return capped_; }  // tokens whose weight was lowered

  static int64_t BytesOf(int64_t width, int64_t tokens) {
    return Matrix::BytesOf(width, width) + 2 * Matrix::BytesOf(width, tokens) + 32 * width;
  }

 private:
  Machine machine_;
  double most_energy_;
  Matrix second_;
  std::vector<double> absolute_;
  std::vector<float> mean_square_, mean_absolute_;
  double weight_ = 0;
  int64_t tokens_ = 0, capped_ = 0;
};

}  // namespace slm::quant
