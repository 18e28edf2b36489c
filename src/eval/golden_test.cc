// Golden answers on a back end whose distributions are written down here; divergences worked out by hand.
#include "eval/golden.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/fake/fake.h"

namespace slm::eval {
namespace {

std::vector<float> Logits(std::vector<double> p) {
  std::vector<float> row;
  for (const double x : p) row.push_back(static_cast<float>(std::log(x) + 2));  // any shift
  return row;
}

// Prompt 1 2, then two steps: 3 and 0.
backend::FakeBackend Backend(std::vector<double> first, std::vector<double> second) {
  backend::FakeScript s;
  s.vocab_size = 4;
  s.max_context = 8;
  s.tokens = {1, 2, 3, 0};
  s.logits[2] = Logits(std::move(first));
  s.logits[3] = Logits(std::move(second));
  return backend::FakeBackend(std::move(s));
}

const std::vector<int32_t> kPrompt{1, 2};

TEST(Golden, KeepsTheMostProbable) {
  auto b = Backend({0.1, 0.2, 0.2, 0.5}, {0.7, 0.1, 0.1, 0.1});
  const auto g = RecordGolden(b, kPrompt, 2, 3);
  ASSERT_TRUE(g.ok()) << g.error().message();
  EXPECT_EQ(g.value().answer, (std::vector<int32_t>{3, 0}));
  EXPECT_EQ(g.value().steps[0].ids, (std::vector<int32_t>{3, 1, 2})) << "the lower id first among equals";
  EXPECT_NEAR(g.value().steps[0].log_probs[0], std::log(0.5), 1e-6);
  EXPECT_NEAR(g.value().steps[0].log_probs[2], std::log(0.2), 1e-6);
}

TEST(Golden, DivergenceOverThePartition) {
  auto b = Backend({0.1, 0.2, 0.2, 0.5}, {0.7, 0.1, 0.1, 0.1});
  const std::vector<GoldenAnswer> answers{RecordGolden(b, kPrompt, 2, 2).Take()};
  const auto same = CompareGolden(b, answers);
  ASSERT_TRUE(same.ok()) << same.error().message();
  EXPECT_NEAR(same.value().max_kld, 0, 1e-7);
  EXPECT_EQ(same.value().same_top, 2);
  EXPECT_EQ(same.value().step_ns.size(), 1u);

  auto other = Backend({0.1, 0.4, 0.2, 0.3}, {0.7, 0.1, 0.1, 0.1});
  const auto match = CompareGolden(other, answers);
  ASSERT_TRUE(match.ok());
  // Kept: 3 and 1; the rest is 0.3 in both.
  const double kld = 0.5 * std::log(0.5 / 0.3) + 0.2 * std::log(0.2 / 0.4);
  EXPECT_NEAR(match.value().max_kld, kld, 1e-6);
  EXPECT_NEAR(match.value().mean_kld, kld / 2, 1e-6);
  EXPECT_EQ(match.value().same_top, 1);
}

TEST(Golden, RefusesWhatDoesNotFit) {
  auto b = Backend({0.1, 0.2, 0.2, 0.5}, {0.7, 0.1, 0.1, 0.1});
  EXPECT_EQ(RecordGolden(b, kPrompt, 7, 2).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(RecordGolden(b, {}, 1, 2).error().code(), Code::kInvalidArgument);
  std::vector<GoldenAnswer> answers{RecordGolden(b, kPrompt, 2, 2).Take()};
  answers[0].steps[1].ids[1] = 4;
  EXPECT_EQ(CompareGolden(b, answers).error().code(), Code::kInvalidArgument);
  answers[0].steps[1].ids[1] = 1;
  answers[0].steps[1].log_probs.pop_back();
  EXPECT_EQ(CompareGolden(b, answers).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(RecordGolden(b, kPrompt, 2, 2, [] { return false; }).error().code(), Code::kCancelled);
}

TEST(Golden, NearestRanks) {
  EXPECT_EQ(NearestRank({}, 0.95), 0);
  EXPECT_EQ(NearestRank({7}, 0.95), 7);
  std::vector<int64_t> v;
  for (int i = 100; i > 0; --i) v.push_back(i);
  EXPECT_EQ(NearestRank(v, 0.95), 95);
  EXPECT_EQ(NearestRank(v, 1), 100);
  EXPECT_EQ(NearestRank(v, 0), 1);
}

}  // namespace
}  // namespace slm::eval
