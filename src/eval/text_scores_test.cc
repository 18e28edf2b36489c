// Scores of written answers against those that sacrebleu, rouge-score and SQuAD's definition give (testdata/make_scores.py), and what
// holds for every interval.
#include "eval/text_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace slm::eval {
namespace {

nlohmann::json Expected() {
  std::ifstream in(SLM_SOURCE_DIR "/src/eval/testdata/scores.json");
  return nlohmann::json::parse(in);
}

TEST(TextScores, AreThoseOfThePackages) {
  const auto expected = Expected();
  ASSERT_GT(expected["rows"].size(), 50u);
  BleuCounts all;
  for (const auto& row : expected["rows"]) {
    const auto answer = row["answer"].get<std::string>();
    SCOPED_TRACE(answer);
    const auto references = row["references"].get<std::vector<std::string>>();
    const BleuCounts counts = CountBleu(answer, references);
    for (size_t n = 0; n < 4; ++n) {
      EXPECT_EQ(counts.matched[n], row["matched"][n].get<int64_t>()) << n;
      EXPECT_EQ(counts.possible[n], row["possible"][n].get<int64_t>()) << n;
    }
    EXPECT_NEAR(BleuOf(counts), row["bleu"].get<double>(), 1e-9);
    all.Add(counts);
    for (size_t i = 0; i < references.size(); ++i) {
      EXPECT_NEAR(RougeL(answer, references[i]), row["rouge_l"][i].get<double>(), 1e-12);
      EXPECT_NEAR(TokenF1(answer, references[i]), row["f1"][i].get<double>(), 1e-12);
      EXPECT_EQ(NormalisedAnswer(answer) == NormalisedAnswer(references[i]), row["exact"][i].get<bool>());
    }
  }
  EXPECT_NEAR(BleuOf(all), expected["corpus_bleu"].get<double>(), 1e-9);
}

// Of n shares p the mean's standard error is sqrt(p (1 - p) / n): the interval is about 1.96 of it on either side.
TEST(Intervals, AreAsWideAsTheNormalDistributionSays) {
  std::vector<double> scores(400, 0.0);
  for (size_t i = 0; i < 100; ++i) scores[i] = 1;
  const Interval interval = BootstrapMean(scores);
  EXPECT_DOUBLE_EQ(interval.mean, 0.25);
  const double half = 1.96 * std::sqrt(0.25 * 0.75 / 400);
  EXPECT_NEAR(interval.low, 0.25 - half, 0.15 * half);
  EXPECT_NEAR(interval.high, 0.25 + half, 0.15 * half);
}

TEST(Intervals, OfOneAndOfNone) {
  const Interval one = BootstrapMean(std::vector<double>{0.5});
  EXPECT_EQ(one.low, 0.5);
  EXPECT_EQ(one.high, 0.5);
  EXPECT_EQ(BootstrapMean({}).mean, 0);
  const std::vector<std::string> reference{"one two three four"};
  const std::vector<BleuCounts> same(5, CountBleu(reference[0], reference));
  const Interval bleu = BootstrapBleu(same);
  EXPECT_NEAR(bleu.low, 100, 1e-9);
  EXPECT_NEAR(bleu.mean, 100, 1e-9);
}

}  // namespace
}  // namespace slm::eval
