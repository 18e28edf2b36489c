// Some rows of a matrix on their way to codes, by one thread: feedback, refit, descent. Positions are those of Curvature::order.
#pragma once
#include <cstdint>
#include <vector>

#include "quant/curvature.h"
#include "quant/gptq.h"
#include "quant/grid_refit.h"

namespace slm::quant {

inline constexpr int64_t kTileRows = 64;

class RowTile {
 public:
  RowTile(const Curvature& h, const BlockForm& form);
  static uint64_t NeedBytes(int64_t padded_k) { return static_cast<uint64_t>(kTileRows * padded_k) * 20; }

  // Rows [first, first + n) of `w`, n <= kTileRows, to the same rows of `out`; adds to `report`.
  void Solve(const float* w, int64_t first, int64_t n, const GptqOptions& options, CodedRows* out, GptqReport* report);

 private:
  // What is chosen for the tile: codes and grids by position.
  struct State {
    std::vector<uint8_t> codes;  // [rows][k]
    std::vector<Grid> grids;     // [rows][k / group]
    std::vector<Shared> shared;  // [rows][k / block]
  };
  // Every block for itself; then d_ and g_ belong to it.
  void ChoosePlain(Search search);
  void PlainBlock(Search search, int64_t row, int64_t begin);
  void PlainRow(Search search, int64_t row);
  void Feedback(GridTime time);
  void FeedbackStep(int64_t row, int64_t begin, int64_t end, GridTime time);
  void Gradient() { h_.Multiply(d_.get(), rows_, g_.get()); }
  void Sweep();
  void RefitPlain(int64_t row, int64_t begin, int64_t end);
  void RefitMultiples(int64_t row, int64_t begin, int64_t end);
  void RefitSuper(int64_t row, int64_t begin);
  void Descend(int64_t row, int64_t begin, int64_t end);
  // v changes by `by` at position p: d, the gradient within p's step, and what the rest of the gradient has to follow.
  void Move(int64_t row, int64_t p, float by);
  void MoveToGrid(int64_t row, int64_t begin, int64_t n, const Grid& from, const Grid& to);
  QuadraticForm FormAt(int64_t row, int64_t begin, int64_t n, const float* t, const float* one, double s, double m) const;
  double Error(int64_t row) const;
  void Offer(bool plain);
  void WriteRow(int64_t row, int64_t to, CodedRows* out) const;

  float* At(const AlignedFloats& a, int64_t row) const { return a.get() + row * padded_; }
  uint8_t* Codes(int64_t row) { return now_.codes.data() + row * k_; }
  const uint8_t* Codes(int64_t row) const { return now_.codes.data() + row * k_; }
  Grid& GridAt(int64_t row, int64_t p) { return now_.grids[static_cast<size_t>(row * (k_ / form_.group) + p / form_.group)]; }
  const Grid& GridAt(int64_t row, int64_t p) const { return now_.grids[static_cast<size_t>(row * (k_ / form_.group) + p / form_.group)]; }
  Shared& SharedAt(int64_t row, int64_t p) { return now_.shared[static_cast<size_t>(row * (k_ / form_.width()) + p / form_.width())]; }

  const Curvature& h_;
  const BlockForm form_;
  const int64_t k_, padded_;
  int64_t rows_ = 0;
  AlignedFloats w_, d_, g_, moved_;  // [rows][padded]: weights, w - v, adjusted weights and then d H, changes of d in a step
  std::vector<float> block_w_, block_u_;
  State now_, best_;
  std::vector<double> best_error_;
  std::vector<bool> plain_;
};

}  // namespace slm::quant
