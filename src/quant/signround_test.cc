// Signed gradients against the error summed by definition, never above where they began, and the same for any number of threads.
#include "quant/signround.h"

#include <gtest/gtest.h>

#include <random>

#include "base/tiers_for_test.h"
#include "quant/schemes.h"

namespace slm::quant {
namespace {

constexpr int64_t kWidth = 64, kRows = 20;

struct Problem {
  std::unique_ptr<ThreadTeam> team;
  Matrix second = Matrix(kWidth, kWidth);
  std::vector<float> w;
  explicit Problem(int n_threads) : team(ThreadTeam::Create(n_threads).Take()) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(kWidth));
    for (int token = 0; token < 200; ++token) {
      const float common = normal(random);  // channels that go together: what codes can make up for
      for (int64_t j = 0; j < kWidth; ++j) x[static_cast<size_t>(j)] = common + 0.7f * normal(random);
      for (int64_t i = 0; i < kWidth; ++i)
        for (int64_t j = 0; j < kWidth; ++j) second.Row(i)[j] += x[static_cast<size_t>(i)] * x[static_cast<size_t>(j)] / 200;
    }
    for (int64_t i = 0; i < kRows * kWidth; ++i) w.push_back(normal(random));
  }
  Machine machine() const { return {team.get(), TestIsa()}; }
  double ErrorOf(const CodedRows& coded, int64_t row) const {
    std::vector<float> v(static_cast<size_t>(kWidth));
    coded.Values(row, v.data());
    double sum = 0;
    for (int64_t i = 0; i < kWidth; ++i)
      for (int64_t j = 0; j < kWidth; ++j) {
        const double a = double{v[static_cast<size_t>(i)]} - w[static_cast<size_t>(row * kWidth + i)];
        const double b = double{v[static_cast<size_t>(j)]} - w[static_cast<size_t>(row * kWidth + j)];
        sum += a * double{second.Row(i)[j]} * b;
      }
    return sum;
  }
};

TEST(SignRound, NoRowIsWorseAndTheSumIsLess) {
  const Problem p(2);
  const Multiplier times(p.machine(), p.second);
  for (const Scheme scheme : {Scheme::kSymmetric, Scheme::kIntegerZero, Scheme::kFloatMin, Scheme::kSignedExtreme}) {
    const BlockForm form{.scheme = scheme, .bits = 4, .group = 32, .store = Store::kF16};
    const CodedRows start = QuantizeGrid(form, Search::kRefit, p.w.data(), kRows, kWidth, nullptr, *p.team);
    CodedRows moved = start;
    const double reported = SolveSignRound(p.machine(), times, p.w.data(), {}, &moved);
    double before = 0, after = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      EXPECT_LE(p.ErrorOf(moved, i), p.ErrorOf(start, i) * (1 + 1e-5));
      before += p.ErrorOf(start, i);
      after += p.ErrorOf(moved, i);
    }
    EXPECT_NEAR(reported, after, 1e-4 * after);
    // Grids with a minimum have no common error left to make up for: their minimums are fitted.
    EXPECT_LT(after, (scheme == Scheme::kFloatMin ? 0.95 : 0.6) * before) << static_cast<int>(scheme);
    for (size_t i = 0; i < moved.codes.size(); ++i) ASSERT_LT(moved.codes[i], 16);
  }
}

TEST(SignRound, SuperBlocksKeepTheirScales) {
  const Problem p(2);
  const BlockForm form{.scheme = Scheme::kSymmetric, .bits = 6, .group = 16, .groups = 4, .scale_low = -128, .scale_high = 127};
  const CodedRows start = QuantizeGrid(form, Search::kRefit, p.w.data(), kRows, kWidth, nullptr, *p.team);
  CodedRows moved = start;
  SolveSignRound(p.machine(), Multiplier(p.machine(), p.second), p.w.data(), {}, &moved);
  for (size_t i = 0; i < start.grids.size(); ++i) ASSERT_EQ(moved.grids[i].scale, start.grids[i].scale);
  EXPECT_NE(moved.codes, start.codes);
}

TEST(SignRound, ThreadsDoNotChangeACode) {
  std::vector<uint8_t> one;
  for (const int n : {1, 2, 3}) {
    const Problem p(n);
    const BlockForm form{.scheme = Scheme::kIntegerZero, .bits = 4, .group = 32, .store = Store::kF16};
    CodedRows coded = QuantizeGrid(form, Search::kRefit, p.w.data(), kRows, kWidth, nullptr, *p.team);
    SolveSignRound(p.machine(), Multiplier(p.machine(), p.second), p.w.data(), {}, &coded);
    if (n == 1) one = coded.codes;
    EXPECT_EQ(coded.codes, one) << n;
  }
}

}  // namespace
}  // namespace slm::quant
