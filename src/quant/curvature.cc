// See curvature.h.
#include "quant/curvature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>

#include "base/check.h"
#include "kernels/matmul_float/contract.h"
#include "quant/factor.h"

namespace slm::quant {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr int64_t kPanel = kernels::kPanelRows;
constexpr int64_t kLeastStep = 128, kMostStep = 256;
constexpr double kDampingStep = 0.01, kMostDamping = 0.5;

// Steps hold whole blocks and whole panels where a block is short enough.
int64_t StepFor(int64_t block) {
  const int64_t whole = std::lcm(block, kPanel);
  if (whole > kMostStep) return kLeastStep;
  return (kLeastStep + whole - 1) / whole * whole;
}

// Indices [0, n) by falling score; equal ones in their order.
template <class Score>
std::vector<int64_t> Falling(int64_t n, Score score) {
  std::vector<int64_t> at(static_cast<size_t>(n));
  std::iota(at.begin(), at.end(), 0);
  std::stable_sort(at.begin(), at.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
  return at;
}

}  // namespace

void AlignedFloats::Free::operator()(float* p) const { ::operator delete[](p, kAlign); }
AlignedFloats::AlignedFloats(int64_t n) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(float);
  values_.reset(static_cast<float*>(::operator new[](bytes, kAlign)));
  std::memset(values_.get(), 0, bytes);
}

// The factor in f64 and C; afterwards H and C, and of both the squares on the diagonal.
uint64_t Curvature::NeedBytes(int64_t k) {
  const auto n = static_cast<uint64_t>(kernels::PaddedK(k));
  return 12 * n * n + 8 * (n + kMostStep) * kMostStep;
}

// Blocks by their largest diagonal, in them groups by theirs, in these columns by their own.
void Curvature::SetOrder(const std::vector<double>& diagonal, const BlockForm& form) {
  const auto most = [&](int64_t begin, int64_t n) { return *std::max_element(diagonal.begin() + begin, diagonal.begin() + begin + n); };
  const int64_t block = form.width(), group = form.group;
  for (const int64_t b : Falling(k_ / block, [&](int64_t i) { return most(i * block, block); }))
    for (const int64_t g : Falling(form.groups, [&](int64_t i) { return most(b * block + i * group, group); })) {
      const int64_t first = b * block + g * group;
      for (const int64_t c : Falling(group, [&](int64_t i) { return diagonal[static_cast<size_t>(first + i)]; }))
        order_.push_back(static_cast<int32_t>(first + c));
    }
}

// R is the factor of the matrix in reverse order, read backwards: L of J H J gives R = J L J.
bool Curvature::Factor(const SecondMoments& moments, ThreadTeam& team) {
  const auto n = static_cast<size_t>(k_);
  std::vector<double> a(n * n);
  auto fill = [&](int thread, int n_threads) {
    const Range mine = SplitRange(k_, kPanel, thread, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      double* to = a.data() + i * k_;
      const int64_t row = order_[static_cast<size_t>(k_ - 1 - i)];
      for (int64_t j = 0; j < i; ++j) to[j] = static_cast<double>(moments.At(row, order_[static_cast<size_t>(k_ - 1 - j)]));
      to[i] = live_[static_cast<size_t>(k_ - 1 - i)] + added_;
    }
  };
  team.Run(fill);
  if (!FactorLower(a.data(), k_, k_, isa_, team)) return false;
  pivots_.resize(n);
  std::vector<double> inverse(n);
  for (size_t k = 0; k < n; ++k) {
    const double r = a[(n - 1 - k) * (n + 1)];
    pivots_[k] = static_cast<float>(r * r);
    inverse[k] = 1 / r;
  }
  auto pack = [&](int thread, int n_threads) {
    const Range mine = SplitRange(k_, kPanel, thread, n_threads);
    for (int64_t j = mine.begin; j < mine.end; ++j) {  // C_jk = R_jk / R_kk for k > j
      const double* row = a.data() + (k_ - 1 - j) * k_;
      for (int64_t k = j + 1; k < k_; ++k) {
        const auto v = static_cast<float>(row[k_ - 1 - k] * inverse[static_cast<size_t>(k)]);
        c_.get()[(k / kPanel * padded_ + j) * kPanel + k % kPanel] = v;
        if (k / step_ == j / step_) step_c_.get()[j * step_ + k % step_] = v;
      }
    }
  };
  c_ = AlignedFloats(padded_ * padded_);
  step_c_ = AlignedFloats((k_ + step_) * step_);
  team.Run(pack);
  return true;
}

void Curvature::PackH(const SecondMoments& moments, ThreadTeam& team) {
  h_ = AlignedFloats(padded_ * padded_);
  step_h_ = AlignedFloats((k_ + step_) * step_);
  diagonal_.resize(static_cast<size_t>(k_));
  auto pack = [&](int thread, int n_threads) {
    const Range mine = SplitRange(k_, kPanel, thread, n_threads);
    for (int64_t j = mine.begin; j < mine.end; ++j) {
      const int64_t row = order_[static_cast<size_t>(j)];
      diagonal_[static_cast<size_t>(j)] = static_cast<float>(live_[static_cast<size_t>(j)] + added_);
      for (int64_t k = 0; k < k_; ++k) {
        const float v = k == j ? diagonal_[static_cast<size_t>(j)] : moments.At(row, order_[static_cast<size_t>(k)]);
        h_.get()[(k / kPanel * padded_ + j) * kPanel + k % kPanel] = v;
        if (k / step_ == j / step_) step_h_.get()[j * step_ + k % step_] = v;
      }
    }
  };
  team.Run(pack);
}

Result<Curvature> Curvature::Create(const SecondMoments& moments, const BlockForm& form, const CurvatureOptions& options, Isa isa,
                                    ThreadTeam& team) {
  const int64_t k = moments.k;
  if (k <= 0 || k % form.width() != 0)
    return Error(Code::kInvalidArgument, fmt::format("{} columns are no whole number of blocks of {}", k, form.width()),
                 "choose a type or a group size that divides the width");
  std::vector<double> diagonal;
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) {
    double sum = 0;  // one look at every value: NaN and infinity survive the sum
    for (int64_t j = 0; j < k; ++j) sum += std::abs(static_cast<double>(moments.At(i, j)));
    diagonal.push_back(static_cast<double>(moments.At(i, i)));
    mean += diagonal.back() / static_cast<double>(k);
    if (!std::isfinite(sum) || diagonal.back() < 0)
      return Error(Code::kCorrupt, fmt::format("the second moments of channel {} are NaN, infinite or negative", i),
                   "the model computes NaN or infinity on the calibration text: look for damaged weights");
  }
  Curvature c;
  c.k_ = k;
  c.padded_ = kernels::PaddedK(k);
  c.step_ = StepFor(form.width());
  c.isa_ = isa;
  c.SetOrder(diagonal, form);
  if (mean == 0) mean = 1;
  for (const int32_t column : c.order_) {
    const double d = diagonal[static_cast<size_t>(column)];
    c.live_.push_back(d == 0 ? mean : d);
  }
  for (c.damping_ = options.damping; c.damping_ <= kMostDamping; c.damping_ += std::max(options.damping, kDampingStep)) {
    c.added_ = c.damping_ * mean;
    if (!c.Factor(moments, team)) continue;
    c.PackH(moments, team);
    return c;
  }
  return Error(Code::kCorrupt, "the second moments are not positive semidefinite", "report this: it is an error of the calibration");
}

void Curvature::Product(const AlignedFloats& packed, const float* x, int64_t m, int64_t begin, int64_t end, int64_t panel_begin,
                        int64_t panel_end, float* to, bool add) const {
  if (panel_begin >= panel_end) return;
  kernels::MatMulArgs args;
  args.w = reinterpret_cast<const uint8_t*>(packed.get() + begin * kPanel);
  args.panel_bytes = padded_ * kPanel * static_cast<int64_t>(sizeof(float));
  args.k = static_cast<int>(std::min((end - begin + 3) / 4 * 4, padded_ - begin));
  args.m = static_cast<int>(m);
  args.x = x + begin;
  args.x_stride = padded_;
  args.out = to;
  args.out_stride = padded_;
  args.accumulate = add;
  args.panel_begin = static_cast<int>(panel_begin);
  args.panel_end = static_cast<int>(panel_end);
  kernels::MatMulFloat(kernels::PackedKind::kF32, isa_).fn(args);
}

void Curvature::AddRest(const float* x, int64_t m, int64_t begin, int64_t end, float* to) const {
  Product(h_, x, m, begin, end, 0, begin / kPanel, to, true);
  Product(h_, x, m, begin, end, (end + kPanel - 1) / kPanel, padded_ / kPanel, to, true);
}
void Curvature::AddLater(const float* x, int64_t m, int64_t begin, int64_t end, float* to) const {
  Product(c_, x, m, begin, end, (end + kPanel - 1) / kPanel, padded_ / kPanel, to, true);
}
void Curvature::Multiply(const float* x, int64_t m, float* to) const { Product(h_, x, m, 0, k_, 0, padded_ / kPanel, to, false); }

}  // namespace slm::quant
