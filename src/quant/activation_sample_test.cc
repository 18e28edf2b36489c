// What a sample of activations keeps, by hand: sinks left out, largest values, ranges behind factors; smoothing of matrices that read it.
#include "quant/activation_sample.h"

#include <gtest/gtest.h>

#include "quant/smooth.h"

namespace slm::quant {
namespace {

// Six tokens of two channels; the third has a thousand times the energy.
const std::vector<float> kRows = {1, -2, 2, 1, 100, -90, -3, 1, 1, 2, 0.5f, -1};

TEST(ActivationSample, LeavesSinksOut) {
  ActivationSample sample(2, 10, 100);
  sample.Add(kRows.data(), 6);
  EXPECT_EQ(sample.left_out(), 1);
  EXPECT_EQ(sample.tokens(), 5);
  EXPECT_EQ(sample.most(), (std::vector<float>{3, 2}));
  ActivationSample all(2, 0, 100);
  all.Add(kRows.data(), 6);
  EXPECT_EQ(all.left_out(), 0);
  EXPECT_EQ(all.most(), (std::vector<float>{100, 90}));
}

TEST(ActivationSample, KeepsFewRowsOfASequenceAndTheLargestOfAll) {
  ActivationSample sample(2, 10, 2);
  sample.Add(kRows.data(), 6);
  EXPECT_EQ(std::vector<float>(sample.rows().begin(), sample.rows().end()), (std::vector<float>{1, -2, -3, 1}));
  EXPECT_EQ(sample.most(), (std::vector<float>{3, 2}));
  EXPECT_EQ(sample.Some(1), (std::vector<float>{1, -2}));
}

TEST(ActivationSample, RangesStandBehindFactors) {
  ActivationSample sample(2, 10, 100);
  sample.Add(kRows.data(), 6);
  EXPECT_EQ(sample.RangeOf({}, {}).high, 3);
  EXPECT_EQ(sample.RangeOf({}, {}).low, -3);
  const std::vector<float> fold = {3, 0.5f};
  EXPECT_EQ(sample.RangeOf(fold, {}).high, 4);
  EXPECT_LE(sample.RangeOf(fold, {.rule = RangeRule::kPercentile}).high, 4);
  EXPECT_GT(sample.RangeOf(fold, {.rule = RangeRule::kPercentile}).high, 3);
}

// A channel a hundred times the others: its size moves into the weights. Channels that are tied get one factor.
TEST(SmoothMembers, MovesALargeChannelIntoTheWeights) {
  constexpr int64_t kWidth = 8, kTokens = 64, kWeights = 16;
  std::vector<float> x, w;
  for (int i = 0; i < kTokens * kWidth; ++i) x.push_back(static_cast<float>((i * 37 % 101) - 50) / 50 * (i % kWidth == 3 ? 100.0f : 1.0f));
  for (int i = 0; i < kWeights * kWidth; ++i) w.push_back(static_cast<float>((i * 53 % 97) - 48) / 48);
  ActivationSample sample(kWidth, 0, 100);
  sample.Add(x.data(), kTokens);
  const FoldMember member{w, kWeights, StoredForm::Of(DType::kQ8_0)};
  const Smoothing plain = SmoothMembers(sample, {&member, 1}, {}, {});
  ASSERT_EQ(plain.scale.size(), static_cast<size_t>(kWidth));
  EXPECT_LT(plain.error, plain.identity_error / 2);
  EXPECT_GT(plain.scale[3], 3 * plain.scale[2]);
  const std::vector<int32_t> tied = {0, 0, 1, 1, 2, 2, 3, 3};
  const Smoothing pairs = SmoothMembers(sample, {&member, 1}, tied, {});
  ASSERT_FALSE(pairs.scale.empty());
  for (size_t j = 0; j < 8; j += 2) EXPECT_EQ(pairs.scale[j], pairs.scale[j + 1]);
}

}  // namespace
}  // namespace slm::quant
