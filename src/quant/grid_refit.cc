// See grid_refit.h.
#include "quant/grid_refit.h"

#include <algorithm>
#include <cmath>

#include "base/float16.h"

namespace slm::quant {
namespace {

double ToStore(double v, Store store) {
  const auto f = static_cast<float>(v);
  return static_cast<double>(store == Store::kF16 ? HalfToFloat(FloatToHalf(f)) : f);
}

constexpr double kSingular = 1e-9;  // a determinant below this share of the product is noise

// The least of the form over (s, m); m stays 0 without `two` or where the form is singular.
struct Pair {
  double s = 0, m = 0;
};
Pair Minimum(const QuadraticForm& q, bool two) {
  const double determinant = q.tt * q.oo - q.to * q.to;
  if (two && determinant > kSingular * q.tt * q.oo)
    return {(q.tb * q.oo - q.ob * q.to) / determinant, (q.ob * q.tt - q.tb * q.to) / determinant};
  return {q.tt > 0 ? q.tb / q.tt : 0.0, 0};
}

// Keeps the candidate with the least error.
class Best {
 public:
  Best(const QuadraticForm& q, const Grid& now) : grid_(now), error_(q.At(static_cast<double>(now.scale), static_cast<double>(now.min))) {}
  void Offer(const QuadraticForm& q, double s, double m, int zero) {
    const double error = q.At(s, m);
    if (!(error < error_)) return;
    error_ = error;
    grid_ = {.scale = static_cast<float>(s), .min = static_cast<float>(m), .zero = zero};
  }
  const Grid& grid() const { return grid_; }

 private:
  Grid grid_;
  double error_;
};

}  // namespace

Grid RefitGrid(const BlockForm& form, const QuadraticForm& q, const Grid& now) {
  Best best(q, now);
  switch (form.scheme) {
    case Scheme::kSymmetric:
    case Scheme::kSignedExtreme: {
      const double s = ToStore(Minimum(q, false).s, form.store);
      if (s > 0 || form.scheme == Scheme::kSignedExtreme) best.Offer(q, s, 0, now.zero);
      break;
    }
    case Scheme::kIntegerZero:
      for (int step = -1; step <= 1; ++step) {
        const int zero = now.zero + step;
        if (zero < form.least_zero || zero >= 1 << form.bits) continue;
        const double z = step;  // t - z in place of t
        const QuadraticForm moved{
            .tb = q.tb - z * q.ob, .ob = q.ob, .tt = q.tt - 2 * z * q.to + z * z * q.oo, .to = q.to - z * q.oo, .oo = q.oo};
        const double s = ToStore(Minimum(moved, false).s, form.store);
        if (s > 0) best.Offer(moved, s, 0, zero);
      }
      break;
    case Scheme::kFloatMin:
    case Scheme::kNegativeMin: {
      Pair p = Minimum(q, true);
      if (form.scheme == Scheme::kNegativeMin && p.m > 0) p = Minimum(q, false);
      best.Offer(q, ToStore(p.s, form.store), ToStore(p.m, form.store), now.zero);
      break;
    }
  }
  return best.grid();
}

Shared RefitShared(const BlockForm& form, const QuadraticForm& q, const Shared& now) {
  Pair p = Minimum(q, form.scheme == Scheme::kNegativeMin);
  if (p.m < 0) p = Minimum(q, false);
  const Shared found{static_cast<float>(ToStore(p.s, form.store)), static_cast<float>(ToStore(p.m, form.store))};
  const double before = q.At(static_cast<double>(now.d), static_cast<double>(now.d_min));
  return q.At(static_cast<double>(found.d), static_cast<double>(found.d_min)) < before ? found : now;
}

Grid RefitNumbers(const BlockForm& form, const QuadraticForm& q, const Shared& shared, const Grid& now) {
  Best best(q, now);
  const int scale = ScaleNumber(shared, now), min = MinNumber(shared, now), reach = form.scheme == Scheme::kNegativeMin ? 1 : 0;
  for (int s = std::max(scale - 1, form.scale_low); s <= std::min(scale + 1, form.scale_high); ++s)
    for (int m = std::max(min - reach, 0); m <= std::min(min + reach, kMostMin); ++m) {
      const Grid g = GridOf(form, shared, s, m);
      best.Offer(q, static_cast<double>(g.scale), static_cast<double>(g.min), g.zero);
    }
  return best.grid();
}

}  // namespace slm::quant
