// See grid.h. Compiled without contraction of multiply and add, with sums in a fixed order of eight lanes: the same codes on
// every processor.
#include "quant/grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/float16.h"
#include "quant/lattice.h"

namespace slm::quant {
namespace {

// Four lanes as the compiler maps them to whatever the processor has; sums use two of them, a fixed order of additions.
using Lanes = float __attribute__((vector_size(16)));
constexpr size_t kLanes = 4, kStep = 2 * kLanes;
constexpr size_t kPart = 256;          // values summed in f32 before the sum goes to f64
constexpr float kTiny = 1e-30f;        // below it an inverse could overflow; no stored scale reaches that far down
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to the nearest whole number

float ToStore(float v, Store store) { return store == Store::kF16 ? HalfToFloat(FloatToHalf(v)) : v; }

float Levels(int bits) { return static_cast<float>((1 << bits) - 1); }

Lanes Load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
Lanes Fill(float v) { return Lanes{v, v, v, v}; }
double Sum(const Lanes& a, const Lanes& b) {
  double s = 0;
  for (size_t l = 0; l < kLanes; ++l) s += static_cast<double>(a[l]) + static_cast<double>(b[l]);
  return s;
}

// Nearest whole codes; |x| is small after the cut.
Lanes CodesOf(const Lanes& w, float inverse, float offset, float levels) {
  const Lanes x = w * inverse + offset, low = Fill(0), high = Fill(levels);
  const Lanes above = x > low ? x : low, cut = above < high ? above : high;
  return (cut + kRound) - kRound;
}

// Calls f(values, weights, index, half) for four values at a time; the last ones are filled up with weight 0.
template <class F>
void EachLanes(const float* w, const float* u, size_t n, F f) {
  const size_t whole = n / kStep * kStep;
  for (size_t i = 0; i < whole; i += kStep)
    for (size_t h = 0; h < 2; ++h) f(Load(w + i + h * kLanes), u ? Load(u + i + h * kLanes) : Fill(1), i + h * kLanes, h);
  if (whole == n) return;
  float tail_w[kStep] = {}, tail_u[kStep] = {};
  for (size_t i = whole; i < n; ++i) {
    tail_w[i - whole] = w[i];
    tail_u[i - whole] = u ? u[i] : 1.0f;
  }
  for (size_t h = 0; h < 2; ++h) f(Load(tail_w + h * kLanes), Load(tail_u + h * kLanes), whole + h * kLanes, h);
}

// Adds the sums of at most kPart values.
void SumPart(const float* w, const float* u, size_t n, float inverse, float offset, float zero, float levels, CodeSums* to) {
  Lanes t_sum[2] = {}, tt_sum[2] = {}, tw_sum[2] = {};
  EachLanes(w, u, n, [&](const Lanes& v, const Lanes& weight, size_t, size_t h) {
    const Lanes t = CodesOf(v, inverse, offset, levels) - zero, ut = weight * t;
    t_sum[h] += ut;
    tt_sum[h] += ut * t;
    tw_sum[h] += ut * v;
  });
  to->t += Sum(t_sum[0], t_sum[1]);
  to->tt += Sum(tt_sum[0], tt_sum[1]);
  to->tw += Sum(tw_sum[0], tw_sum[1]);
}

double ErrorPart(const Grid& g, const float* w, const float* u, size_t n, float levels, uint8_t* codes) {
  const float zero = static_cast<float>(g.zero), inverse = std::abs(g.scale) < kTiny ? 0.0f : 1.0f / g.scale;
  const float offset = zero - g.min * inverse;
  Lanes sum[2] = {};
  EachLanes(w, u, n, [&](const Lanes& v, const Lanes& weight, size_t i, size_t h) {
    const Lanes q = CodesOf(v, inverse, offset, levels), d = v - (g.scale * (q - zero) + g.min);
    sum[h] += weight * d * d;
    if (!codes) return;
    for (size_t l = 0; l < kLanes && i + l < n; ++l) codes[i + l] = static_cast<uint8_t>(q[l]);
  });
  return Sum(sum[0], sum[1]);
}

struct GroupRange {
  float low = 0, high = 0, extreme = 0;  // extreme: the value farthest from 0, the first of equals
  float amax() const { return std::abs(extreme); }
};
// Over the values that count; 0 is the range of none.
GroupRange RangeOf(std::span<const float> w, const float* u) {
  GroupRange r;
  bool first = true;
  for (size_t i = 0; i < w.size(); ++i) {
    if (u && u[i] == 0) continue;
    r.low = first ? w[i] : std::min(r.low, w[i]);
    r.high = first ? w[i] : std::max(r.high, w[i]);
    if (first || std::abs(w[i]) > r.amax()) r.extreme = w[i];
    first = false;
  }
  return r;
}

// A grid that is being searched, before its numbers are rounded to their stored form.
struct Candidate {
  double scale = 0, min = 0;
  int zero = 0;
  double gain = -1;  // how much less the square error is than with all values at 0
};

class Searcher {
 public:
  Searcher(const GridSpec& spec, std::span<const float> w, const float* u) : spec_(spec), w_(w), u_(u), range_(RangeOf(w, nullptr)) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double weight = u ? static_cast<double>(u[i]) : 1.0;
      u_sum_ += weight;
      uw_sum_ += weight * static_cast<double>(w[i]);
    }
  }

  Grid Best() {
    Grid best = Nearest();
    if (spec_.search == Search::kNearest || range_.amax() < kTiny) return best;
    if (u_) range_ = RangeOf(w_, u_);
    if (range_.amax() < kTiny) return best;
    if (OneParameter()) SearchScale();
    else if (spec_.scheme == Scheme::kIntegerZero) SearchZero();
    else SearchMin();
    double least = AssignCodes(best, spec_.bits, w_, u_, nullptr);
    const auto offer = [&](const Grid& found) {
      const double error = AssignCodes(found, spec_.bits, w_, u_, nullptr);
      if (error < least) best = found;
      least = std::min(least, error);
    };
    if (best_.gain >= 0) offer(Rounded(best_));
    if (const auto l = least > 0 ? LatticeOf(w_) : std::nullopt) {
      if (const auto zero = ZeroOn(*l, 1)) offer(OnLattice(*l, *zero));
      if (const auto zero = ZeroOn(*l, -1); zero && spec_.scheme == Scheme::kSignedExtreme)
        offer(OnLattice({-l->step, -l->high, -l->low}, *zero));
    }
    return best;
  }

 private:
  bool OneParameter() const { return spec_.scheme == Scheme::kSymmetric || spec_.scheme == Scheme::kSignedExtreme; }
  int Half() const { return 1 << (spec_.bits - 1); }

  Grid Nearest() const {
    const float levels = Levels(spec_.bits), half = static_cast<float>(Half());
    if (range_.amax() < kTiny) return {.scale = 0, .min = 0, .zero = OneParameter() ? Half() : spec_.least_zero};
    Candidate c;
    switch (spec_.scheme) {
      case Scheme::kSymmetric: c = {.scale = static_cast<double>(range_.amax() / (half - 1)), .zero = Half()}; break;
      case Scheme::kSignedExtreme: c = {.scale = static_cast<double>(range_.extreme / -half), .zero = Half()}; break;
      case Scheme::kIntegerZero: {
        const float low = std::min(range_.low, 0.0f), high = std::max(range_.high, 0.0f);
        float scale = (high - low) / levels;
        const int zero = ZeroFor(low, scale);
        if (zero == spec_.least_zero) scale = std::max(scale, high / (levels - static_cast<float>(zero)));
        c = {.scale = static_cast<double>(scale), .zero = zero};
        break;
      }
      case Scheme::kFloatMin:
      case Scheme::kNegativeMin: {
        const float low = LowEnd();
        c = {.scale = static_cast<double>((range_.high - low) / levels), .min = static_cast<double>(low)};
        if (range_.high < low) c.scale = 0;
        break;
      }
    }
    return Rounded(c);
  }

  // The code of 0 for a lattice that the scheme can hold; `sign` -1: turned round.
  std::optional<int> ZeroOn(const Lattice& l, int sign) const {
    const int low = sign > 0 ? l.low : -l.high, high = sign > 0 ? l.high : -l.low, most = (1 << spec_.bits) - 1;
    const int least = std::max(-low, spec_.scheme == Scheme::kIntegerZero ? spec_.least_zero : 0);
    if (high + least > most) return std::nullopt;
    if (OneParameter()) return Half() >= least && Half() + high <= most ? std::optional(Half()) : std::nullopt;
    return std::clamp(Half(), least, most - high);  // a power of two: as a minimum, it costs the scale no bit
  }
  Grid OnLattice(const Lattice& l, int zero) const {
    const Candidate c = Scaled(static_cast<float>(1 / l.step), zero);
    if (OneParameter() || spec_.scheme == Scheme::kIntegerZero) return Rounded(c);
    const float scale = ToStore(static_cast<float>(c.scale), spec_.store);
    return {.scale = scale, .min = ToStore(-scale * static_cast<float>(zero), spec_.store), .zero = 0};
  }
  // Codes around `zero`, and the best scale for them.
  Candidate Scaled(float inverse, int zero) const {
    const CodeSums s = SumCodes(w_, u_, inverse, static_cast<float>(zero), zero, spec_.bits);
    return {.scale = s.tt > 0 ? s.tw / s.tt : 0.0, .zero = zero};
  }

  float LowEnd() const { return spec_.scheme == Scheme::kNegativeMin ? std::min(range_.low, 0.0f) : range_.low; }
  int ZeroFor(float low, float scale) const {
    return static_cast<int>(std::min(std::max(std::nearbyint(-low / scale), static_cast<float>(spec_.least_zero)), Levels(spec_.bits)));
  }
  Grid Rounded(const Candidate& c) const {
    Grid g{
        .scale = ToStore(static_cast<float>(c.scale), spec_.store), .min = ToStore(static_cast<float>(c.min), spec_.store), .zero = c.zero};
    if (std::abs(g.scale) < kTiny) g.scale = 0;
    return g;
  }

  // Codes at an inverse scale, and the best scale (and min) for them.
  Candidate Refit(float inverse, float offset, int zero) const {
    const CodeSums s = SumCodes(w_, u_, inverse, offset, zero, spec_.bits);
    Candidate c;
    c.zero = zero;
    const double determinant = u_sum_ * s.tt - s.t * s.t;
    const bool two = !OneParameter() && spec_.scheme != Scheme::kIntegerZero;
    if (two && determinant > 1e-9 * u_sum_ * s.tt) {
      c.scale = (u_sum_ * s.tw - s.t * uw_sum_) / determinant;
      c.min = (s.tt * uw_sum_ - s.t * s.tw) / determinant;
      if (spec_.scheme == Scheme::kFloatMin || c.min <= 0) {
        c.gain = c.scale * s.tw + c.min * uw_sum_;
        return c;
      }
      c.min = 0;
    } else if (two && spec_.scheme == Scheme::kFloatMin) {
      return c;  // one code only
    }
    if (s.tt <= 0) return c;
    c.scale = s.tw / s.tt;
    c.gain = c.scale * s.tw;
    if (spec_.scheme != Scheme::kSignedExtreme && c.scale <= 0) c.gain = -1;
    return c;
  }
  bool Take(const Candidate& c) {
    if (c.gain <= best_.gain) return false;
    best_ = c;
    return true;
  }
  // Codes for the refitted grid, refitted again, until nothing is gained.
  void Alternate(Candidate c, int rounds) {
    for (int i = 0; i < rounds && std::abs(c.scale) > static_cast<double>(kTiny); ++i) {
      const double inverse = 1 / c.scale;
      c = Refit(static_cast<float>(inverse), static_cast<float>(c.zero - c.min * inverse), c.zero);
      if (!Take(c)) return;
    }
  }

  void SearchScale() {
    const bool either = spec_.scheme == Scheme::kSignedExtreme;
    const int zero = Half();
    for (int step = -kSteps; step <= kSteps; ++step) {
      const float top = static_cast<float>(zero) + 0.1f * static_cast<float>(step);
      for (const float sign : {-1.0f, 1.0f}) {
        if (!either && sign * range_.extreme < 0) continue;
        Take(Refit(sign * top / range_.extreme, static_cast<float>(zero), zero));
      }
    }
    Alternate(best_, kRounds);
  }

  void SearchZero() {
    const float low = std::min(range_.low, 0.0f), span = std::max(range_.high, 0.0f) - low;
    for (int step = -kSteps; step <= kSteps; ++step) {
      const float inverse = (Levels(spec_.bits) + 0.1f * static_cast<float>(step)) / span;
      const int zero = ZeroFor(low, 1 / inverse);
      for (int z = std::max(zero - 1, spec_.least_zero); z <= std::min(zero + 1, (1 << spec_.bits) - 1); ++z)
        Take(Refit(inverse, static_cast<float>(z), z));
    }
    Alternate(best_, kRounds);
  }

  void SearchMin() {
    const float low = LowEnd(), span = range_.high - low;
    if (span < kTiny) return;  // a constant, which the nearest grid holds
    for (int step = -kSteps; step <= kSteps; ++step) {
      const float inverse = (Levels(spec_.bits) + 0.1f * static_cast<float>(step)) / span;
      Take(Refit(inverse, -low * inverse, 0));
    }
    Alternate(best_, kRounds);
  }

  static constexpr int kSteps = 10, kRounds = 4;
  const GridSpec& spec_;
  const std::span<const float> w_;
  const float* const u_;
  GroupRange range_;
  double u_sum_ = 0, uw_sum_ = 0;  // of u and u * w
  Candidate best_;
};

}  // namespace

Grid ChooseGrid(const GridSpec& spec, std::span<const float> w, const float* u) {
  SLM_ASSERT(!w.empty() && spec.bits >= 2 && spec.bits <= 8);
  return Searcher(spec, w, u).Best();
}

double AssignCodes(const Grid& grid, int bits, std::span<const float> w, const float* u, uint8_t* codes) {
  double total = 0;
  for (size_t i = 0; i < w.size(); i += kPart)
    total += ErrorPart(grid, w.data() + i, u ? u + i : nullptr, std::min(kPart, w.size() - i), Levels(bits), codes ? codes + i : nullptr);
  return total;
}

CodeSums SumCodes(std::span<const float> w, const float* u, float inverse, float offset, int zero, int bits) {
  CodeSums total;
  for (size_t i = 0; i < w.size(); i += kPart)
    SumPart(w.data() + i, u ? u + i : nullptr, std::min(kPart, w.size() - i), inverse, offset, static_cast<float>(zero), Levels(bits),
            &total);
  return total;
}

}  // namespace slm::quant
