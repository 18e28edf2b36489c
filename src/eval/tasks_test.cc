// Questions read from the published shapes, choices scored by a back end whose probabilities are known, intervals from tables.
#include "eval/tasks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace slm::eval {
namespace {

TEST(Questions, OfOurOwnShape) {
  const auto q = ReadQuestions(
      "\n{\"prompt\": \"2 + 2 =\", \"choices\": [\" 3\", \" 4\"], \"answer\": 1}\r\n  \n"
      "{\"prompt\": \"\", \"choices\": [\"a\", \"b\", \"c\"], \"answer\": 0}");
  ASSERT_TRUE(q.ok()) << q.error().message();
  ASSERT_EQ(q.value().size(), 2u);
  EXPECT_EQ(q.value()[0].prompt, "2 + 2 =");
  EXPECT_EQ(q.value()[0].choices, (std::vector<std::string>{" 3", " 4"}));
  EXPECT_EQ(q.value()[0].answer, 1);
  EXPECT_EQ(q.value()[1].choices.size(), 3u);
}

// Prompts as lm-evaluation-harness makes them.
TEST(Questions, OfArc) {
  const auto q = ReadQuestions(
      R"({"id":"x","question":{"stem":"Which is hot?","choices":[{"text":"ice","label":"1"},{"text":"fire","label":"2"}]},"answerKey":"2"})");
  ASSERT_TRUE(q.ok()) << q.error().message();
  EXPECT_EQ(q.value()[0].prompt, "Question: Which is hot?\nAnswer:");
  EXPECT_EQ(q.value()[0].choices, (std::vector<std::string>{" ice", " fire"}));
  EXPECT_EQ(q.value()[0].answer, 1);
}

TEST(Questions, OfHellaSwag) {
  const auto q =
      ReadQuestions(R"({"ind":4,"activity_label":"Baking","ctx_a":"[header] How to bake [title] Take flour.","ctx_b":"the MAN","ctx":"-",)"
                    R"("endings":["stirs [substeps] it.  ","walks.","[x","sits"],"label":"3"})");
  ASSERT_TRUE(q.ok()) << q.error().message();
  EXPECT_EQ(q.value()[0].prompt, "Baking: How to bake. Take flour. The man");
  EXPECT_EQ(q.value()[0].choices, (std::vector<std::string>{" stirs it.", " walks.", " [x", " sits"}));
  EXPECT_EQ(q.value()[0].answer, 3);
}

// The description and prompt of lm-evaluation-harness's mmlu.
TEST(Questions, OfMmlu) {
  const auto q =
      ReadQuestions(R"({"subject":"abstract_algebra","index":8,"question":" Find it. ","choices":["0","4","2","6"],"answer":1})");
  ASSERT_TRUE(q.ok()) << q.error().message();
  EXPECT_EQ(q.value()[0].preamble, "The following are multiple choice questions (with answers) about abstract algebra.\n\n");
  EXPECT_EQ(q.value()[0].prompt, "Find it.\nA. 0\nB. 4\nC. 2\nD. 6\nAnswer:");
  EXPECT_EQ(q.value()[0].choices, (std::vector<std::string>{" A", " B", " C", " D"}));
  EXPECT_EQ(q.value()[0].answer, 1);
}

TEST(Questions, OfPiqaWithLabelsOfTheirOwn) {
  const std::string lines = "{\"goal\":\"g\",\"sol1\":\"x\",\"sol2\":\"y\"}\n{\"goal\":\"h\",\"sol1\":\"u\",\"sol2\":\"v\"}\n";
  const auto q = ReadQuestions(lines, 0, "1\n\n 0\r\n");
  ASSERT_TRUE(q.ok()) << q.error().message();
  EXPECT_EQ(q.value()[0].prompt, "Question: g\nAnswer:");
  EXPECT_EQ(q.value()[0].choices, (std::vector<std::string>{" x", " y"}));
  EXPECT_EQ(q.value()[0].answer, 1);
  EXPECT_EQ(q.value()[1].answer, 0);
  for (const char* labels : {"", "1\n", "1\n2\n", "1\n0x\n", "1\n-1\n"}) {
    SCOPED_TRACE(labels);
    const auto bad = ReadQuestions(lines, 0, labels);
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().code(), Code::kCorrupt);
  }
  EXPECT_EQ(ReadQuestions(R"({"goal":"g","sol1":"x","sol2":"y","label":1})").value()[0].answer, 1);
}

TEST(Questions, OrProblems) {
  EXPECT_TRUE(HasChoices("\n{\"prompt\":\"\",\"choices\":[]}"));
  EXPECT_TRUE(HasChoices("{\"question\":{\"stem\":\"\"}}"));
  EXPECT_TRUE(HasChoices("{\"goal\":\"\"}"));
  EXPECT_FALSE(HasChoices("{\"question\":\"q\",\"answer\":\"#### 1\"}"));
  EXPECT_FALSE(HasChoices("{\"prompt\":\"q\",\"answer\":\"1\"}"));
  EXPECT_FALSE(HasChoices("{"));
}

TEST(Questions, BadLinesAreNamed) {
  const std::string good = R"({"prompt":"p","choices":["a","b"],"answer":0})"
                           "\n";
  for (const char* bad :
       {"{", "[]", "1", "{}", R"({"prompt":1,"choices":["a","b"],"answer":0})", R"({"prompt":"p","choices":["a"],"answer":0})",
        R"({"prompt":"p","choices":["a",""],"answer":0})", R"({"prompt":"p","choices":["a","b"],"answer":2})",
        R"({"prompt":"p","choices":["a","b"],"answer":-1})", R"({"prompt":"p","choices":["a","b"],"answer":0.5})",
        R"({"prompt":"p","choices":["a","b"],"answer":18446744073709551615})", R"({"prompt":"p","choices":["a","b"],"answer":"10"})",
        R"({"prompt":"p","choices":["a","b"]})", R"({"question":"q","answerKey":"A"})",
        R"({"question":{"stem":"s","choices":[{"text":"a","label":"A"},{"text":"b","label":"B"}]},"answerKey":"C"})",
        R"({"endings":["a","b"],"label":0})", "{\"prompt\":\"\xff\",\"choices\":[\"a\",\"b\"],\"answer\":0}"}) {
    SCOPED_TRACE(bad);
    const auto q = ReadQuestions(good + "\n" + bad);
    ASSERT_FALSE(q.ok());
    EXPECT_EQ(q.error().code(), Code::kCorrupt);
    EXPECT_NE(q.error().message().find("line 3"), std::string::npos) << q.error().message();
    EXPECT_TRUE(ReadQuestions(good + bad, 1).ok());  // beyond the limit
  }
  EXPECT_FALSE(ReadQuestions(" \n\n").ok());
  EXPECT_FALSE(ReadQuestions(std::string(200000, '[')).ok());
}

TEST(Questions, LengthsAreCodePoints) {
  EXPECT_EQ(ChoiceLength(" Paris"), 5);
  EXPECT_EQ(ChoiceLength("  Z\xc3\xbcrich \xe2\x82\xac"), 8);
  EXPECT_EQ(ChoiceLength("   "), 0);
}

// Token t is followed by v with probability (1 + (3 t + v) % V) / sum. Keeps its cache as a list, so that what a choice sees is checked.
class ChainBackend final : public backend::Backend {
 public:
  static constexpr int kV = 5;
  static double Probability(int32_t t, int32_t v) { return (1 + (3 * t + v) % kV) / 15.0; }
  explicit ChainBackend(int chunk) {
    c_.vocab_size = kV;
    c_.max_context = 12;
    c_.max_tokens = chunk;
  }
  Result<backend::Logits> Forward(std::span<const int32_t> tokens, backend::LogitsOf) override {
    if (cache.size() + tokens.size() > 12) return Error(Code::kLimit, "no room");
    rows_.clear();
    for (const int32_t t : tokens) {
      cache.push_back(t);
      ++evaluated;
      for (int v = 0; v < kV; ++v) rows_.push_back(static_cast<float>(std::log(Probability(t, v)) + 7));
    }
    return backend::Logits{rows_.data(), static_cast<int>(tokens.size()), kV, kV};
  }
  Status Rewind(int position) override {
    if (position > used()) return Error(Code::kInvalidArgument, "too far");
    cache.resize(static_cast<size_t>(position));
    return Ok();
  }
  int used() const override { return static_cast<int>(cache.size()); }
  const backend::Capabilities& capabilities() const override { return c_; }
  std::vector<backend::PlacementRow> Placement() const override { return {}; }
  std::vector<int32_t> cache;
  int evaluated = 0;

 private:
  backend::Capabilities c_;
  std::vector<float> rows_;
};

TEST(Choices, AreScoredFromTheirFirstToken) {
  const std::vector<ChoiceTokens> choices = {
      {{1, 2, 3, 0}, 3}, {{1, 2, 3, 4, 4, 1}, 3}, {{1, 2, 0, 3}, 2}};  // the last merged with the prompt's end
  const auto chain = [](const ChoiceTokens& c) {
    double sum = 0;
    for (size_t i = c.first; i < c.tokens.size(); ++i) sum += std::log(ChainBackend::Probability(c.tokens[i - 1], c.tokens[i]));
    return sum;
  };
  for (const int chunk : {1, 2, 8}) {
    ChainBackend b(chunk);
    const auto scores = ScoreChoices(b, choices);
    ASSERT_TRUE(scores.ok()) << scores.error().message();
    ASSERT_EQ(scores.value().size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(scores.value()[i], chain(choices[i]), 1e-6);
    EXPECT_EQ(b.evaluated, 1 + 2 + 4 + 2);  // the shared first token once, no choice's last
  }
}

TEST(Choices, Refusals) {
  ChainBackend b(8);
  const auto code = [&](ChoiceTokens c) { return ScoreChoices(b, std::vector<ChoiceTokens>{{{1, 2}, 1}, std::move(c)}).error().code(); };
  EXPECT_EQ(code({{1, 2}, 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, 2}), Code::kInvalidArgument);
  EXPECT_EQ(code({std::vector<int32_t>(14, 1), 3}), Code::kLimit);
}

// The roots x of (p - x)^2 = z^2 x (1 - x) / n, found by bisection in Python; of 0 of n: z^2 / (n + z^2).
TEST(Shares, HaveWilsonsInterval) {
  const auto near = [](int64_t right, int64_t n, double low, double high) {
    const Proportion p = ProportionOf(right, n);
    EXPECT_NEAR(p.low, low, 1e-6);
    EXPECT_NEAR(p.high, high, 1e-6);
    EXPECT_NEAR(p.share, static_cast<double>(right) / static_cast<double>(n), 1e-15);
  };
  near(8, 10, 0.490162, 0.943318);
  near(0, 10, 0, 0.277533);
  near(10, 10, 0.722467, 1);
  near(50, 100, 0.403832, 0.596168);
}

}  // namespace
}  // namespace slm::eval
