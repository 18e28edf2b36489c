// See signround.h. Rows are independent, so parts of them are solved one after another, each with all threads.
#include "quant/signround.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/float16.h"

namespace slm::quant {
namespace {

constexpr int64_t kPartRows = 512;
// How far a factor goes from 1: as far as an offset, since the steps of the usual rate add up to a half. auto-round lets the ends of a
// range shrink only (factors of 0 to 1 of the largest value); here the start is a scale that was fitted, from which both ways are open.
constexpr float kFactorReach = 0.5f;
// How far from its code a weight may begin: less than a half, where rounding is a tie, so that the start is rounded to its own codes.
constexpr float kMostFromCode = 0.49f;

enum class Products : uint8_t { kOfStart, kOfStep };  // what codes were multiplied

class Part {
 public:
  Part(const Machine& machine, const Multiplier& times_second, const float* w, int64_t first, int64_t rows, const SignRoundOptions& options,
       CodedRows* coded)
      : machine_(machine),
        times_second_(times_second),
        w_(w),
        first_(first),
        rows_(rows),
        options_(options),
        coded_(*coded),
        groups_(coded->width / coded->form.group),
        change_(rows, coded->width),
        product_(rows, coded->width),
        place_(static_cast<size_t>(rows * coded->width)),
        factor_(static_cast<size_t>(rows * groups_), 1.0f),
        codes_(place_.size()),
        grids_(factor_.size()),
        least_(static_cast<size_t>(rows), 0.0) {
    start_.assign(coded_.grids.begin() + first * groups_, coded_.grids.begin() + (first + rows) * groups_);
  }

  double Solve() {
    auto begin = [&](int t, int n) { Rows(t, n, [&](int64_t i) { Begin(i); }); };
    machine_.team->Run(begin);
    const double rate = options_.rate > 0 ? options_.rate : 1.0 / options_.steps;
    for (int step = 0; step <= options_.steps; ++step) {
      times_second_.Multiply(change_, product_);
      const auto by = static_cast<float>(rate * (options_.steps - step) / options_.steps);
      auto move = [&](int t, int n) {
        Rows(t, n, [&](int64_t i) {
          Keep(i, step == 0 ? Products::kOfStart : Products::kOfStep);
          if (step < options_.steps) Move(i, by);
        });
      };
      machine_.team->Run(move);
    }
    double sum = 0;
    for (const double e : least_) sum += e;
    return sum;
  }

 private:
  template <class F>
  void Rows(int t, int n_threads, const F& f) const {
    const Range mine = SplitRange(rows_, 1, t, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) f(i);
  }
  size_t At(int64_t i, int64_t j) const { return static_cast<size_t>(i * coded_.width + j); }
  size_t GroupAt(int64_t i, int64_t j) const { return static_cast<size_t>(i * groups_ + j / coded_.form.group); }
  const float* Weights(int64_t i) const { return w_ + (first_ + i) * coded_.width; }

  // Where the weight lies between codes, as near to it as its code allows: the start rounds to its own codes.
  void Begin(int64_t i) {
    for (int64_t j = 0; j < coded_.width; ++j) {
      const Grid& g = start_[GroupAt(i, j)];
      const float code = coded_.codes[static_cast<size_t>(first_ * coded_.width) + At(i, j)];
      const float exact = g.scale != 0 ? (Weights(i)[j] - g.min) / g.scale + static_cast<float>(g.zero) : code;
      place_[At(i, j)] = code + std::clamp(exact - code, -kMostFromCode, kMostFromCode);
    }
    Round(i);
  }

  // Codes, grids and the change of the weights from places and factors.
  void Round(int64_t i) {
    const auto levels = static_cast<float>((1 << coded_.form.bits) - 1);
    for (int64_t g = 0; g < groups_; ++g) {
      Grid grid = start_[static_cast<size_t>(i * groups_ + g)];
      const float factor = factor_[static_cast<size_t>(i * groups_ + g)];
      if (factor != 1) {
        grid.scale = Stored(grid.scale * factor);
        grid.min = Stored(grid.min * factor);
      }
      grids_[static_cast<size_t>(i * groups_ + g)] = grid;
    }
    float* change = change_.Row(i);
    for (int64_t j = 0; j < coded_.width; ++j) {
      const auto code = static_cast<uint8_t>(std::clamp(std::nearbyint(place_[At(i, j)]), 0.0f, levels));
      codes_[At(i, j)] = code;
      change[j] = ValueOf(grids_[GroupAt(i, j)], code) - Weights(i)[j];
    }
  }
  float Stored(float v) const { return coded_.form.store == Store::kF16 ? HalfToFloat(FloatToHalf(v)) : v; }

  // What the products say about the codes of the last step.
  void Keep(int64_t i, Products of) {
    double error = 0;
    for (int64_t j = 0; j < coded_.width; ++j) error += static_cast<double>(change_.Row(i)[j]) * static_cast<double>(product_.Row(i)[j]);
    double& least = least_[static_cast<size_t>(i)];
    if (of == Products::kOfStep && !(error < least)) return;
    least = error;
    if (of == Products::kOfStart) return;  // its codes are there
    std::copy(codes_.begin() + static_cast<int64_t>(At(i, 0)), codes_.begin() + static_cast<int64_t>(At(i + 1, 0)),
              coded_.codes.begin() + first_ * coded_.width + static_cast<int64_t>(At(i, 0)));
    std::copy(grids_.begin() + i * groups_, grids_.begin() + (i + 1) * groups_, coded_.grids.begin() + (first_ + i) * groups_);
  }

  void Move(int64_t i, float by) {
    const float* gradient = product_.Row(i);
    const auto sign = [](float v) { return v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f; };
    const bool scales = !coded_.form.is_super();  // those of a super-block are whole multiples
    for (int64_t g = 0; g < groups_; ++g) {
      const Grid& start = start_[static_cast<size_t>(i * groups_ + g)];
      double along = 0;  // of the group's factor
      for (int64_t j = g * coded_.form.group; j < (g + 1) * coded_.form.group; ++j) {
        place_[At(i, j)] -= by * sign(gradient[j] * start.scale);
        along += static_cast<double>(gradient[j]) * static_cast<double>(ValueOf(start, codes_[At(i, j)]));
      }
      float& factor = factor_[static_cast<size_t>(i * groups_ + g)];
      if (scales) factor = std::clamp(factor - by * sign(static_cast<float>(along)), 1 - kFactorReach, 1 + kFactorReach);
    }
    Round(i);
  }

  const Machine& machine_;
  const Multiplier& times_second_;
  const float* const w_;
  const int64_t first_, rows_;
  const SignRoundOptions& options_;
  CodedRows& coded_;
  const int64_t groups_;
  Matrix change_, product_;
  std::vector<float> place_, factor_;
  std::vector<uint8_t> codes_;
  std::vector<Grid> start_, grids_;
  std::vector<double> least_;
};

}  // namespace

double SolveSignRound(const Machine& machine, const Multiplier& times_second, const float* w, const SignRoundOptions& options,
                      CodedRows* start) {
  double sum = 0;
  for (int64_t at = 0; at < start->rows; at += kPartRows)
    sum += Part(machine, times_second, w, at, std::min(kPartRows, start->rows - at), options, start).Solve();
  return sum;
}

}  // namespace slm::quant
