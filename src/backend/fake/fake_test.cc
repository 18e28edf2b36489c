// The scripted back end must notice what a test relies on it to notice.
#include "backend/fake/fake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace slm::backend {
namespace {

FakeScript Script() {
  FakeScript s;
  s.vocab_size = 8;
  s.max_context = 6;
  s.max_tokens = 3;
  s.tokens = {1, 2, 3, 4, 5, 6, 7};
  return s;
}

int ArgMax(std::span<const float> row) { return static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin()); }

TEST(Fake, AnswersWithTheNextScriptedToken) {
  FakeBackend b(Script());
  const int32_t first[] = {1, 2};
  auto logits = b.Forward(first, LogitsOf::kLastToken);
  ASSERT_TRUE(logits.ok());
  EXPECT_EQ(logits.value().n_rows, 1);
  EXPECT_EQ(ArgMax(logits.value().Row(0)), 3);
  EXPECT_EQ(b.used(), 2);
  const int32_t next[] = {3, 4, 5};
  logits = b.Forward(next, LogitsOf::kAllTokens);
  ASSERT_TRUE(logits.ok());
  ASSERT_EQ(logits.value().n_rows, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ArgMax(logits.value().Row(i)), 4 + i);
  EXPECT_EQ(b.chunks(), (std::vector<int>{2, 3}));
}

TEST(Fake, NoticesAWrongToken) {
  FakeBackend b(Script());
  const int32_t wrong[] = {1, 3};
  const auto r = b.Forward(wrong, LogitsOf::kLastToken);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kInternal);
  EXPECT_NE(r.error().message().find("slot 1 expects token 2, got 3"), std::string::npos) << r.error().message();
  EXPECT_EQ(b.used(), 0);
}

TEST(Fake, HoldsItsLimits) {
  FakeBackend b(Script());
  EXPECT_EQ(b.Forward({}, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  const int32_t four[] = {1, 2, 3, 4};
  EXPECT_EQ(b.Forward(four, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  const int32_t outside[] = {8};
  EXPECT_EQ(b.Forward(outside, LogitsOf::kLastToken).error().code(), Code::kInvalidArgument);
  const int32_t a[] = {1, 2, 3}, c[] = {4, 5, 6}, d[] = {7};
  ASSERT_TRUE(b.Forward(a, LogitsOf::kLastToken).ok());
  ASSERT_TRUE(b.Forward(c, LogitsOf::kLastToken).ok());
  EXPECT_EQ(b.Forward(d, LogitsOf::kLastToken).error().code(), Code::kLimit);
  EXPECT_EQ(b.Rewind(7).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(b.Rewind(3).ok());
  EXPECT_EQ(b.used(), 3);
  EXPECT_TRUE(b.Forward(c, LogitsOf::kLastToken).ok());
}

TEST(Fake, InjectsErrorsAndRows) {
  FakeScript s = Script();
  s.failure = Error(Code::kCorrupt, "logits are NaN from layer 3 on");
  s.fail_slot = 1;
  s.logits[1] = std::vector<float>(8, std::nanf(""));
  FakeBackend b(std::move(s));
  const int32_t one[] = {1}, two[] = {2};
  const auto row = b.Forward(one, LogitsOf::kLastToken);
  ASSERT_TRUE(row.ok());
  EXPECT_TRUE(std::isnan(row.value().Row(0)[0]));
  EXPECT_EQ(b.Forward(two, LogitsOf::kLastToken).error().code(), Code::kCorrupt);
  EXPECT_EQ(b.used(), 1);
}

}  // namespace
}  // namespace slm::backend
