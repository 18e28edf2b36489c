// Budgets against all combinations of small cases, and against the bound of the relaxation for large ones.
#include "quant/allocation/allocate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace slm::quant {
namespace {

// Like types of a tensor: loss falls by about a factor of 4 with each bit, a little noise that may spoil the order.
std::vector<TypeOptions> Tensors(size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  const auto uniform = [&] { return static_cast<double>(rng()) / 4294967296.0; };
  std::vector<TypeOptions> out(n);
  for (TypeOptions& options : out) {
    const double size = 1000 * (1 + 9 * uniform()), sensitivity = std::pow(10, -3 * uniform());
    for (const double bits : {4.5, 5.5, 6.5625, 8.5})
      options.push_back({static_cast<uint64_t>(size * bits / 8), sensitivity * std::pow(4.0, -bits) * (0.5 + uniform())});
    std::shuffle(options.begin(), options.end(), rng);
  }
  return out;
}

struct Total {
  uint64_t bytes = 0;
  double loss = 0;
};
Total TotalOf(const std::vector<TypeOptions>& tensors, const std::vector<int>& chosen) {
  Total t;
  for (size_t i = 0; i < tensors.size(); ++i) {
    t.bytes += tensors[i][static_cast<size_t>(chosen[i])].bytes;
    t.loss += tensors[i][static_cast<size_t>(chosen[i])].loss;
  }
  return t;
}
// Calls f(total) for every combination.
template <class F>
void EachCombination(const std::vector<TypeOptions>& tensors, F f) {
  std::vector<int> chosen(tensors.size());
  for (;;) {
    f(TotalOf(tensors, chosen));
    size_t i = 0;
    while (i < tensors.size() && ++chosen[i] == static_cast<int>(tensors[i].size())) chosen[i++] = 0;
    if (i == tensors.size()) return;
  }
}

TEST(Allocate, BytesAgainstAllCombinations) {
  double sum_found = 0, sum_best = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::vector<TypeOptions> tensors = Tensors(6, seed);
    uint64_t low = 0, high = 0;
    double largest = 0;  // loss of the worst option less that of the best, of any tensor
    for (const TypeOptions& t : tensors) {
      const auto [a, b] = std::minmax_element(t.begin(), t.end(), [](auto& x, auto& y) { return x.bytes < y.bytes; });
      low += a->bytes;
      high += b->bytes;
      const auto [c, d] = std::minmax_element(t.begin(), t.end(), [](auto& x, auto& y) { return x.loss < y.loss; });
      largest = std::max(largest, d->loss - c->loss);
    }
    for (const double share : {0.0, 0.1, 0.3, 0.6, 0.9, 1.0}) {
      const uint64_t budget = low + static_cast<uint64_t>(share * static_cast<double>(high - low));
      double best = std::numeric_limits<double>::infinity();
      EachCombination(tensors, [&](const Total& t) {
        if (t.bytes <= budget) best = std::min(best, t.loss);
      });
      const auto a = AllocateBytes(tensors, budget);
      ASSERT_TRUE(a.ok());
      const Total total = TotalOf(tensors, a.value().chosen);
      EXPECT_EQ(total.bytes, a.value().bytes);
      EXPECT_DOUBLE_EQ(total.loss, a.value().loss);
      EXPECT_LE(total.bytes, budget);
      EXPECT_GE(total.loss, best - 1e-12);
      EXPECT_LE(a.value().bound, best + 1e-12);
      EXPECT_LE(total.loss, best + largest);
      sum_found += total.loss;
      sum_best += best;
    }
  }
  EXPECT_LE(sum_found, 1.05 * sum_best);
}

TEST(Allocate, LossAgainstAllCombinations) {
  double sum_found = 0, sum_best = 0;
  for (unsigned seed = 100; seed < 160; ++seed) {
    const std::vector<TypeOptions> tensors = Tensors(6, seed);
    double low = std::numeric_limits<double>::infinity(), high = 0;
    EachCombination(tensors, [&](const Total& t) {
      low = std::min(low, t.loss);
      high = std::max(high, t.loss);
    });
    for (const double share : {0.02, 0.1, 0.3, 0.6}) {
      const double budget = low + share * (high - low);
      uint64_t best = std::numeric_limits<uint64_t>::max();
      EachCombination(tensors, [&](const Total& t) {
        if (t.loss <= budget) best = std::min(best, t.bytes);
      });
      const auto a = AllocateLoss(tensors, budget);
      ASSERT_TRUE(a.ok());
      const Total total = TotalOf(tensors, a.value().chosen);
      EXPECT_LE(total.loss, budget);
      EXPECT_GE(total.bytes, best);
      EXPECT_LE(a.value().bound, static_cast<double>(best) + 1e-6);
      sum_found += static_cast<double>(total.bytes);
      sum_best += static_cast<double>(best);
    }
  }
  EXPECT_LE(sum_found, 1.02 * sum_best);
}

// With many tensors the last step is a small share: the relaxation is nearly reached.
TEST(Allocate, ManyTensorsReachTheBound) {
  const std::vector<TypeOptions> tensors = Tensors(210, 7);
  uint64_t high = 0;
  for (const TypeOptions& t : tensors)
    high += std::max_element(t.begin(), t.end(), [](auto& x, auto& y) { return x.bytes < y.bytes; })->bytes;
  double last = std::numeric_limits<double>::infinity();
  for (const double bits : {4.6, 5.0, 5.5, 6.0, 7.0, 8.5}) {
    const auto a = AllocateBytes(tensors, static_cast<uint64_t>(bits / 8.5 * static_cast<double>(high)));
    ASSERT_TRUE(a.ok());
    EXPECT_LE(a.value().loss, 1.01 * a.value().bound) << bits;
    EXPECT_LT(a.value().loss, last) << bits;
    last = a.value().loss;
  }
}

TEST(Allocate, BudgetsThatCannotBeMet) {
  const std::vector<TypeOptions> tensors = {{{100, 2.0}, {200, 1.0}}, {{50, 0.5}}};
  const auto bytes = AllocateBytes(tensors, 149);
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().code(), Code::kLimit);
  EXPECT_NE(bytes.error().message().find("150"), std::string::npos);
  EXPECT_NE(bytes.error().message().find("149"), std::string::npos);
  EXPECT_EQ(AllocateBytes(tensors, 150).value().chosen, (std::vector<int>{0, 0}));
  EXPECT_EQ(AllocateBytes(tensors, 250).value().chosen, (std::vector<int>{1, 0}));
  EXPECT_EQ(AllocateLoss(tensors, 1.4).error().code(), Code::kLimit);
  EXPECT_EQ(AllocateLoss(tensors, 1.5).value().chosen, (std::vector<int>{1, 0}));
  EXPECT_EQ(AllocateLoss(tensors, 2.5).value().chosen, (std::vector<int>{0, 0}));
  EXPECT_TRUE(AllocateBytes({}, 0).ok());
}

// A type that is larger and no better is never taken, whatever is left.
TEST(Allocate, NothingIsPaidForNothing) {
  const std::vector<TypeOptions> tensors = {{{10, 1.0}, {20, 1.0}, {30, 1.5}}, {{10, 1.0}, {12, 0.0}, {40, 0.0}}};
  const Allocation a = AllocateBytes(tensors, 1000).value();
  EXPECT_EQ(a.chosen, (std::vector<int>{0, 1}));
  EXPECT_EQ(a.loss, a.bound);
}

}  // namespace
}  // namespace slm::quant
