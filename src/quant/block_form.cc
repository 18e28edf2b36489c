// See block_form.h.
#include "quant/block_form.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/float16.h"

namespace slm::quant {
namespace {

float AsHalf(float v) { return HalfToFloat(FloatToHalf(v)); }

class SuperBlock {
 public:
  SuperBlock(const BlockForm& form, const float* w, const float* u) : form_(form), n_(form.groups), w_(w), u_(u) {}

  Shared Choose(Search search, Grid* grids) {
    const double nearest = Start(Search::kNearest);
    if (search == Search::kRefit) {
      const SuperBlock plain = *this;
      Start(Search::kRefit);
      if (Refine() > nearest) Restore(plain);  // rounding the scales can cost more than the search gained
    }
    for (int g = 0; g < n_; ++g) grids[g] = GridAt(scale_[g], min_[g]);
    return shared_;
  }

 private:
  static constexpr int kRounds = 2;

  std::span<const float> Values(int g) const { return {w_ + g * form_.group, static_cast<size_t>(form_.group)}; }
  const float* Weights(int g) const { return u_ ? u_ + g * form_.group : nullptr; }
  Grid GridAt(int scale, int min) const { return GridOf(form_, shared_, scale, min); }
  double ErrorOf(int g, int scale, int min) const { return AssignCodes(GridAt(scale, min), form_.bits, Values(g), Weights(g), nullptr); }
  static int ToCode(float v, float unit, int low, int high) {
    return unit == 0 ? 0
                     : static_cast<int>(std::min(std::max(std::nearbyint(v / unit), static_cast<float>(low)), static_cast<float>(high)));
  }

  // The groups' own grids, and the shared numbers that hold them; returns the error.
  double Start(Search search) {
    float scales[kMostGroups], mins[kMostGroups];
    for (int g = 0; g < n_; ++g) {
      const Grid grid = ChooseGrid({form_.scheme, form_.bits, search, Store::kF32}, Values(g), Weights(g));
      scales[g] = grid.scale;
      mins[g] = -grid.min;
    }
    SetShared(scales, mins);
    double error = 0;
    for (int g = 0; g < n_; ++g) {
      scale_[g] = ToCode(scales[g], shared_.d, form_.scale_low, form_.scale_high);
      min_[g] = ToCode(mins[g], shared_.d_min, 0, kMostMin);
      error += ErrorOf(g, scale_[g], min_[g]);
    }
    return error;
  }

  // The largest scale and minimum take the end of their range.
  void SetShared(const float* scales, const float* mins) {
    float extreme = 0, most_min = 0;
    for (int g = 0; g < n_; ++g) {
      if (std::abs(scales[g]) > std::abs(extreme)) extreme = scales[g];
      most_min = std::max(most_min, mins[g]);
    }
    const int end = form_.scale_low < 0 ? form_.scale_low : form_.scale_high;
    shared_.d = AsHalf(extreme / static_cast<float>(end));
    shared_.d_min = AsHalf(most_min / static_cast<float>(kMostMin));
  }

  // Whole numbers by the error of their group, then d and d_min by least squares over the block, in turn; returns the error.
  double Refine() {
    double total = 0;
    for (int g = 0; g < n_; ++g) total += RefineGroup(g);
    for (int round = 0; round < kRounds; ++round) {
      const SuperBlock before = *this;
      if (!RefitShared()) break;
      double now = 0;
      for (int g = 0; g < n_; ++g) now += RefineGroup(g);
      if (now >= total) {
        Restore(before);
        break;
      }
      total = now;
    }
    return total;
  }
  double RefineGroup(int g) {
    int best_scale = scale_[g], best_min = min_[g];
    double best = ErrorOf(g, best_scale, best_min);
    const int reach = form_.scheme == Scheme::kNegativeMin ? 1 : 0;
    for (int s = std::max(scale_[g] - 1, form_.scale_low); s <= std::min(scale_[g] + 1, form_.scale_high); ++s)
      for (int m = std::max(min_[g] - reach, 0); m <= std::min(min_[g] + reach, kMostMin); ++m) {
        const double error = ErrorOf(g, s, m);
        if (error >= best) continue;
        best = error;
        best_scale = s;
        best_min = m;
      }
    scale_[g] = best_scale;
    min_[g] = best_min;
    return best;
  }
  // With a = scale * t and b = min per group: the d and d_min that minimise the sum of u * (w - d * a + d_min * b)^2.
  bool RefitShared() {
    double aa = 0, ab = 0, bb = 0, aw = 0, bw = 0;
    for (int g = 0; g < n_; ++g) {
      const Grid grid = GridAt(scale_[g], min_[g]);
      if (grid.scale == 0) continue;
      const float inverse = 1 / grid.scale;
      const CodeSums s =
          SumCodes(Values(g), Weights(g), inverse, static_cast<float>(grid.zero) - grid.min * inverse, grid.zero, form_.bits);
      double u_sum = 0, uw_sum = 0;
      for (int i = 0; i < form_.group; ++i) {
        const double weight = u_ ? static_cast<double>(u_[g * form_.group + i]) : 1.0;
        u_sum += weight;
        uw_sum += weight * static_cast<double>(w_[g * form_.group + i]);
      }
      const double scale = scale_[g], min = min_[g];
      aa += scale * scale * s.tt;
      ab += scale * min * s.t;
      bb += min * min * u_sum;
      aw += scale * s.tw;
      bw += min * uw_sum;
    }
    const double determinant = aa * bb - ab * ab;
    if (bb > 0 && determinant > 1e-9 * aa * bb) {
      const double d_min = (aw * ab - aa * bw) / determinant;
      if (d_min < 0) return false;
      shared_ = {AsHalf(static_cast<float>((aw * bb - ab * bw) / determinant)), AsHalf(static_cast<float>(d_min))};
      return true;
    }
    if (aa <= 0 || bb > 0) return false;
    shared_.d = AsHalf(static_cast<float>(aw / aa));
    return true;
  }
  void Restore(const SuperBlock& b) {
    shared_ = b.shared_;
    std::copy(b.scale_, b.scale_ + kMostGroups, scale_);
    std::copy(b.min_, b.min_ + kMostGroups, min_);
  }

  const BlockForm& form_;
  const int n_;
  const float* const w_;
  const float* const u_;
  Shared shared_;
  int scale_[kMostGroups] = {}, min_[kMostGroups] = {};
};

}  // namespace

BlockForm FormOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return {.scheme = Scheme::kSignedExtreme, .bits = 4};
    case DType::kQ4_1: return {.scheme = Scheme::kFloatMin, .bits = 4};
    case DType::kQ5_0: return {.scheme = Scheme::kSignedExtreme, .bits = 5};
    case DType::kQ5_1: return {.scheme = Scheme::kFloatMin, .bits = 5};
    case DType::kQ8_0: return {.scheme = Scheme::kSymmetric, .bits = 8};
    case DType::kQ4_K: return {.scheme = Scheme::kNegativeMin, .bits = 4, .group = 32, .groups = 8, .scale_high = 63};
    default:
      SLM_ASSERT(dtype == DType::kQ6_K);
      return {.scheme = Scheme::kSignedExtreme, .bits = 6, .group = 16, .groups = 16, .scale_low = -128, .scale_high = 127};
  }
}

namespace {
int WholeNumber(float v, float unit) {
  const float number = unit == 0 ? 0.0f : v / unit;
  return std::isfinite(number) ? static_cast<int>(std::nearbyint(number)) : 0;  // a unit beyond f16 is the caller's to find
}
}  // namespace
int ScaleNumber(const Shared& shared, const Grid& grid) { return WholeNumber(grid.scale, shared.d); }
int MinNumber(const Shared& shared, const Grid& grid) { return WholeNumber(-grid.min, shared.d_min); }
Grid GridOf(const BlockForm& form, const Shared& shared, int scale, int min) {
  const int zero = form.scheme == Scheme::kNegativeMin ? 0 : 1 << (form.bits - 1);
  return {.scale = shared.d * static_cast<float>(scale), .min = -(shared.d_min * static_cast<float>(min)), .zero = zero};
}

Shared ChooseBlock(const BlockForm& form, Search search, std::span<const float> w, const float* u, Grid* grids) {
  SLM_ASSERT(static_cast<int>(w.size()) == form.width() && form.groups <= kMostGroups);
  if (form.is_super()) return SuperBlock(form, w.data(), u).Choose(search, grids);
  grids[0] = ChooseGrid({form.scheme, form.bits, search, form.store, form.least_zero}, w, u);
  return {};
}

}  // namespace slm::quant
