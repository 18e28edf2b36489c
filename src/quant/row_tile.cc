// See row_tile.h.
#include "quant/row_tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/lpbq.h"

namespace slm::quant {
namespace {

constexpr float kRound = 12582912.0f;  // 1.5 * 2^23, as in grid.cc
constexpr float kTiny = 1e-30f;

// The nearest code of one value.
class Coder {
 public:
  Coder(const Grid& grid, int bits)
      : inverse_(std::abs(grid.scale) < kTiny ? 0.0f : 1.0f / grid.scale),
        offset_(static_cast<float>(grid.zero) - grid.min * inverse_),
        levels_(static_cast<float>((1 << bits) - 1)) {}
  int operator()(float v) const {
    const float x = v * inverse_ + offset_, cut = std::min(std::max(x, 0.0f), levels_);
    return static_cast<int>((cut + kRound) - kRound);
  }

 private:
  float inverse_, offset_, levels_;
};

void AddScaled(float* to, const float* from, float by, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += by * from[i];
}

using Lanes = float __attribute__((vector_size(16)));  // as in grid.cc
constexpr int64_t kColumns = 16;

// t H and one H for kColumns columns from `at` on, H [n][n] symmetric with rows h(j): rows are added up, which many lanes do at once, in
// the order in which a sum over a row would go.
template <class H>
void SumRows(const H& h, int64_t n, const float* t, const float* one, int64_t at, float* ht, float* ho) {
  constexpr size_t kVectors = kColumns / 4;
  Lanes by_t[kVectors] = {}, by_one[kVectors] = {};
  for (int64_t j = 0; j < n; ++j) {
    const float* row = h(j) + at;
    for (size_t v = 0; v < kVectors; ++v) {
      Lanes x;
      std::memcpy(&x, row + 4 * v, sizeof x);
      by_t[v] += x * t[j];
      by_one[v] += x * one[j];
    }
  }
  std::memcpy(ht + at, by_t, sizeof by_t);
  std::memcpy(ho + at, by_one, sizeof by_one);
}

}  // namespace

RowTile::RowTile(const Curvature& h, const BlockForm& form)
    : h_(h),
      form_(form),
      k_(h.k()),
      padded_(h.padded_k()),
      w_(kTileRows * padded_),
      d_(kTileRows * padded_),
      g_(kTileRows * padded_),
      moved_(kTileRows * padded_) {
  now_.codes.resize(static_cast<size_t>(kTileRows * k_));
  now_.grids.resize(static_cast<size_t>(kTileRows * (k_ / form.group)));
  if (form.is_super()) now_.shared.resize(static_cast<size_t>(kTileRows * (k_ / form.width())));
  best_ = now_;
  block_w_.resize(static_cast<size_t>(form.width()));
  block_u_.resize(static_cast<size_t>(form.width()));
}

void RowTile::Solve(const float* w, int64_t first, int64_t n, const GptqOptions& options, CodedRows* out, GptqReport* report) {
  rows_ = n;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t p = 0; p < k_; ++p) At(w_, i)[p] = w[(first + i) * k_ + h_.order()[static_cast<size_t>(p)]];
  best_error_.assign(static_cast<size_t>(n), std::numeric_limits<double>::infinity());
  plain_.assign(static_cast<size_t>(n), true);
  ChoosePlain(Search::kNearest);
  for (int64_t i = 0; i < n; ++i) report->nearest += Error(i);
  if (options.guard == Guard::kPlain) Offer(true);
  ChoosePlain(Search::kRefit);
  for (int64_t i = 0; i < n; ++i) report->refit += Error(i);
  if (options.guard == Guard::kPlain) Offer(true);
  if (options.grids == GridTime::kStatic && options.search == Search::kNearest) ChoosePlain(Search::kNearest);
  Feedback(form_.row_multiples > 0 ? GridTime::kStatic : options.grids);
  Gradient();
  for (int s = 0; s < options.sweeps; ++s) Sweep();
  Offer(false);
  for (int64_t i = 0; i < n; ++i) {
    report->error += best_error_[static_cast<size_t>(i)];
    report->plain_rows += plain_[static_cast<size_t>(i)];
    WriteRow(i, first + i, out);
  }
}

void RowTile::ChoosePlain(Search search) {
  for (int64_t i = 0; i < rows_; ++i) {
    if (form_.row_multiples > 0) PlainRow(search, i);
    else
      for (int64_t p = 0; p < k_; p += form_.width()) PlainBlock(search, i, p);
  }
  Gradient();
}

// In the order of the columns, so that ties fall as they do without moments.
void RowTile::PlainBlock(Search search, int64_t row, int64_t begin) {
  const int64_t n = form_.width(), first = h_.order()[static_cast<size_t>(begin)] / n * n;
  const auto column = [&](int64_t p) { return h_.order()[static_cast<size_t>(p)] - first; };
  std::vector<float>&w = block_w_, &u = block_u_;
  for (int64_t p = begin; p < begin + n; ++p) {
    w[static_cast<size_t>(column(p))] = At(w_, row)[p];
    u[static_cast<size_t>(column(p))] = h_.diagonal()[static_cast<size_t>(p)];
  }
  Grid grids[kMostGroups];
  const Shared shared = ChooseBlock(form_, search, w, search == Search::kRefit ? u.data() : nullptr, grids);
  if (form_.is_super()) SharedAt(row, begin) = shared;
  for (int64_t p = begin; p < begin + n; p += form_.group) {
    const Grid& grid = GridAt(row, p) = grids[column(p) / form_.group];
    AssignCodes(grid, form_.bits, {At(w_, row) + p, static_cast<size_t>(form_.group)}, nullptr, Codes(row) + p);
    for (int64_t j = p; j < p + form_.group; ++j) At(d_, row)[j] = At(w_, row)[j] - ValueOf(grid, Codes(row)[j]);
  }
}

// The same where the grids of a row hang together.
void RowTile::PlainRow(Search search, int64_t row) {
  std::vector<float> w(static_cast<size_t>(k_)), u(w.size());
  for (int64_t p = 0; p < k_; ++p) {
    const auto column = static_cast<size_t>(h_.order()[static_cast<size_t>(p)]);
    w[column] = At(w_, row)[p];
    u[column] = h_.diagonal()[static_cast<size_t>(p)];
  }
  std::vector<Grid> grids(static_cast<size_t>(k_ / form_.group));
  ChooseLpbqGrids(form_, search, w, search == Search::kRefit ? u.data() : nullptr, grids.data());
  for (int64_t p = 0; p < k_; p += form_.group) {
    const Grid& grid = GridAt(row, p) = grids[static_cast<size_t>(h_.order()[static_cast<size_t>(p)] / form_.group)];
    AssignCodes(grid, form_.bits, {At(w_, row) + p, static_cast<size_t>(form_.group)}, nullptr, Codes(row) + p);
    for (int64_t j = p; j < p + form_.group; ++j) At(d_, row)[j] = At(w_, row)[j] - ValueOf(grid, Codes(row)[j]);
  }
}

void RowTile::Feedback(GridTime time) {
  for (int64_t i = 0; i < rows_; ++i) std::memcpy(At(g_, i), At(w_, i), static_cast<size_t>(padded_) * sizeof(float));
  for (int64_t begin = 0; begin < k_; begin += h_.step()) {
    const int64_t end = std::min(begin + h_.step(), k_);
    for (int64_t i = 0; i < rows_; ++i) FeedbackStep(i, begin, end, time);
    h_.AddLater(d_.get(), rows_, begin, end, g_.get());
  }
}

void RowTile::FeedbackStep(int64_t row, int64_t begin, int64_t end, GridTime time) {
  const int64_t block = form_.width();
  float* adjusted = At(g_, row);
  for (int64_t p = begin; p < end;) {  // a block may be longer than a step: its grids are chosen where it begins
    if (p % block == 0 && time == GridTime::kOnArrival) {
      const std::span<const float> w(adjusted + p, static_cast<size_t>(block));
      const Shared shared = ChooseBlock(form_, Search::kRefit, w, h_.pivots().data() + p, &GridAt(row, p));
      if (form_.is_super()) SharedAt(row, p) = shared;
    }
    const int64_t stop = std::min(end, (p / form_.group + 1) * form_.group);
    for (const Coder code(GridAt(row, p), form_.bits); p < stop; ++p) {
      const int q = code(adjusted[p]);
      const float d = At(w_, row)[p] - ValueOf(GridAt(row, p), q);
      Codes(row)[p] = static_cast<uint8_t>(q);
      At(d_, row)[p] = d;
      AddScaled(adjusted + p + 1, h_.step_c(p) + p % h_.step() + 1, d, end - p - 1);
    }
  }
}

void RowTile::Sweep() {
  for (int64_t begin = 0; begin < k_; begin += h_.step()) {
    const int64_t end = std::min(begin + h_.step(), k_);
    for (int64_t i = 0; i < rows_; ++i) {
      std::memset(At(moved_, i) + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
      if (form_.is_super())
        for (int64_t p = begin; p < end; p += form_.width()) RefitSuper(i, p);
      else if (form_.row_multiples > 0) RefitMultiples(i, begin, end);
      else if (form_.group <= h_.step()) RefitPlain(i, begin, end);
      Descend(i, begin, end);
    }
    h_.AddRest(moved_.get(), rows_, begin, end, g_.get());
  }
}

void RowTile::Move(int64_t row, int64_t p, float by) {
  if (by == 0) return;
  const int64_t first = p / h_.step() * h_.step();
  At(d_, row)[p] -= by;
  At(moved_, row)[p] -= by;
  AddScaled(At(g_, row) + first, h_.step_h(p), -by, std::min(h_.step(), k_ - first));
}
void RowTile::MoveToGrid(int64_t row, int64_t begin, int64_t n, const Grid& from, const Grid& to) {
  for (int64_t p = begin; p < begin + n; ++p) Move(row, p, ValueOf(to, Codes(row)[p]) - ValueOf(from, Codes(row)[p]));
}

// The form over `n` positions for v = s t + m one, when it is (s, m) now.
QuadraticForm RowTile::FormAt(int64_t row, int64_t begin, int64_t n, const float* t, const float* one, double s, double m) const {
  QuadraticForm q;
  const float* g = At(g_, row) + begin;
  float ht[256] = {}, ho[256] = {};
  const auto h = [&](int64_t j) { return h_.step_h(begin + j) + begin % h_.step(); };
  int64_t done = 0;
  for (; done + kColumns <= n; done += kColumns) SumRows(h, n, t, one, done, ht, ho);
  for (int64_t j = 0; j < n && done < n; ++j) {
    AddScaled(ht + done, h(j) + done, t[j], n - done);
    AddScaled(ho + done, h(j) + done, one[j], n - done);
  }
  for (int64_t i = 0; i < n; ++i) {
    const double ti = static_cast<double>(t[i]), oi = static_cast<double>(one[i]), gi = static_cast<double>(g[i]);
    q.tb += ti * gi;
    q.ob += oi * gi;
    q.tt += ti * static_cast<double>(ht[i]);
    q.to += ti * static_cast<double>(ho[i]);
    q.oo += oi * static_cast<double>(ho[i]);
  }
  q.tb += s * q.tt + m * q.to;
  q.ob += s * q.to + m * q.oo;
  return q;
}

void RowTile::RefitPlain(int64_t row, int64_t begin, int64_t end) {
  float t[256], one[256];
  const int64_t n = form_.group;
  std::fill(one, one + n, 1.0f);
  for (int64_t p = begin; p < end; p += n) {
    Grid& grid = GridAt(row, p);
    for (int64_t i = 0; i < n; ++i) t[i] = static_cast<float>(Codes(row)[p + i] - grid.zero);
    const QuadraticForm q = FormAt(row, p, n, t, one, static_cast<double>(grid.scale), static_cast<double>(grid.min));
    const Grid better = RefitGrid(form_, q, grid);
    MoveToGrid(row, p, n, grid, better);
    grid = better;
  }
}

// The largest multiples stay: they say what the row's number is.
void RowTile::RefitMultiples(int64_t row, int64_t begin, int64_t end) {
  float t[256], one[256] = {};
  const int64_t n = form_.group;
  float most = 0;
  for (int64_t p = 0; p < k_; p += n) most = std::max(most, GridAt(row, p).scale);
  const float unit = most / static_cast<float>(form_.row_multiples);
  for (int64_t p = begin; p < end; p += n) {
    Grid& grid = GridAt(row, p);
    if (grid.scale == most) continue;
    for (int64_t i = 0; i < n; ++i) t[i] = static_cast<float>(Codes(row)[p + i] - grid.zero);
    const QuadraticForm q = FormAt(row, p, n, t, one, static_cast<double>(grid.scale), 0);
    if (q.tt <= 0) continue;
    const int multiple =
        static_cast<int>(std::clamp(std::nearbyint(q.tb / q.tt / static_cast<double>(unit)), 1.0, 1.0 * form_.row_multiples));
    Grid better = grid;
    better.scale = unit * static_cast<float>(multiple);
    const auto error = [&](const Grid& g) { return q.At(static_cast<double>(g.scale), 0); };
    if (error(better) >= error(grid)) continue;
    MoveToGrid(row, p, n, grid, better);
    grid = better;
  }
}

void RowTile::RefitSuper(int64_t row, int64_t begin) {
  float t[256], one[256];
  const int64_t n = form_.group;
  Shared& shared = SharedAt(row, begin);
  for (int64_t i = 0; i < form_.width(); ++i) {
    const Grid& grid = GridAt(row, begin + i);
    t[i] = static_cast<float>(ScaleNumber(shared, grid) * (Codes(row)[begin + i] - grid.zero));
    one[i] = static_cast<float>(-MinNumber(shared, grid));
  }
  const QuadraticForm whole = FormAt(row, begin, form_.width(), t, one, static_cast<double>(shared.d), static_cast<double>(shared.d_min));
  const Shared better = RefitShared(form_, whole, shared);
  for (int64_t p = begin; p < begin + form_.width(); p += n) {
    Grid& grid = GridAt(row, p);
    const Grid moved = GridOf(form_, better, ScaleNumber(shared, grid), MinNumber(shared, grid));
    MoveToGrid(row, p, n, grid, moved);
    grid = moved;
  }
  shared = better;
  std::fill(one, one + n, 1.0f);
  for (int64_t p = begin; p < begin + form_.width(); p += n) {
    Grid& grid = GridAt(row, p);
    for (int64_t i = 0; i < n; ++i) t[i] = static_cast<float>(Codes(row)[p + i] - grid.zero);
    const QuadraticForm q = FormAt(row, p, n, t, one, static_cast<double>(grid.scale), static_cast<double>(grid.min));
    const Grid numbers = RefitNumbers(form_, q, shared, grid);
    MoveToGrid(row, p, n, grid, numbers);
    grid = numbers;
  }
}

// The best code of each column, all others as they are.
void RowTile::Descend(int64_t row, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end;) {
    const Grid& grid = GridAt(row, p);
    const Coder code(grid, form_.bits);
    const int64_t stop = std::min(end, (p / form_.group + 1) * form_.group);
    for (; p < stop; ++p) {
      const int q = Codes(row)[p];
      const float v = ValueOf(grid, q);
      const int better = code(v + At(g_, row)[p] / h_.diagonal()[static_cast<size_t>(p)]);
      if (better == q) continue;
      Codes(row)[p] = static_cast<uint8_t>(better);
      Move(row, p, ValueOf(grid, better) - v);
    }
  }
}

double RowTile::Error(int64_t row) const {
  double sum = 0;
  for (int64_t p = 0; p < k_; ++p) sum += static_cast<double>(At(g_, row)[p]) * static_cast<double>(At(d_, row)[p]);
  return sum;
}

void RowTile::Offer(bool plain) {
  const auto copy = [&](const auto& from, auto& to, int64_t row, int64_t n) {
    std::copy(from.begin() + row * n, from.begin() + (row + 1) * n, to.begin() + row * n);
  };
  for (int64_t i = 0; i < rows_; ++i) {
    const double error = Error(i);
    if (!(error < best_error_[static_cast<size_t>(i)])) continue;
    best_error_[static_cast<size_t>(i)] = error;
    plain_[static_cast<size_t>(i)] = plain;
    copy(now_.codes, best_.codes, i, k_);
    copy(now_.grids, best_.grids, i, k_ / form_.group);
    if (form_.is_super()) copy(now_.shared, best_.shared, i, k_ / form_.width());
  }
}

void RowTile::WriteRow(int64_t row, int64_t to, CodedRows* out) const {
  const int64_t groups = k_ / form_.group, blocks = k_ / form_.width();
  for (int64_t p = 0; p < k_; ++p) {
    const int64_t column = h_.order()[static_cast<size_t>(p)];
    out->codes[static_cast<size_t>(to * k_ + column)] = best_.codes[static_cast<size_t>(row * k_ + p)];
    if (p % form_.group == 0)
      out->grids[static_cast<size_t>(to * groups + column / form_.group)] =
          best_.grids[static_cast<size_t>(row * groups + p / form_.group)];
    if (form_.is_super() && p % form_.width() == 0)
      out->shared[static_cast<size_t>(to * blocks + column / form_.width())] =
          best_.shared[static_cast<size_t>(row * blocks + p / form_.width())];
  }
}

}  // namespace slm::quant
