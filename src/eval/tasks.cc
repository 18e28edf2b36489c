// Log-likelihoods of choices and the interval of a share; see tasks.h.
#include "eval/tasks.h"

#include <algorithm>
#include <cmath>

#include "eval/eval.h"
#include "eval/rows.h"

namespace slm::eval {
namespace {

// Tokens that every choice begins with and that come before every row that is needed (the one of token first - 1).
size_t SharedTokens(std::span<const ChoiceTokens> choices) {
  size_t shared = choices[0].first - 1;
  for (const ChoiceTokens& c : choices) {
    shared = std::min(shared, c.first - 1);
    const auto end = choices[0].tokens.begin() + static_cast<std::ptrdiff_t>(shared);
    shared = static_cast<size_t>(std::mismatch(choices[0].tokens.begin(), end, c.tokens.begin(), c.tokens.end()).first -
                                 choices[0].tokens.begin());
  }
  return shared;
}

// The log-likelihood of the tokens from c.first on, given that tokens [0, from) are in the cache.
Result<double> Score(backend::Backend& b, const ChoiceTokens& c, size_t from) {
  double sum = 0;
  const std::span<const int32_t> read = std::span(c.tokens).first(c.tokens.size() - 1);
  SLM_RETURN_IF_ERROR(EachRow(b, read, from, c.first - 1,
                              [&](std::span<const float> row, size_t i) { sum -= NegativeLogProbability(row, c.tokens[i + 1]); }));
  return sum;
}

}  // namespace

Result<std::vector<double>> ScoreChoices(backend::Backend& b, std::span<const ChoiceTokens> choices) {
  for (const ChoiceTokens& c : choices)
    if (c.first < 1 || c.first >= c.tokens.size())
      return Error(Code::kInvalidArgument, "a choice needs a token of its own and one before it", "give a prompt, or --bos always");
  std::vector<double> scores;
  if (choices.empty()) return scores;
  const size_t shared = SharedTokens(choices);
  SLM_RETURN_IF_ERROR(b.Rewind(0));
  SLM_RETURN_IF_ERROR(EachRow(b, std::span(choices[0].tokens).first(shared), 0, shared, [](std::span<const float>, size_t) {}));
  for (const ChoiceTokens& c : choices) {
    SLM_RETURN_IF_ERROR(b.Rewind(static_cast<int>(shared)));
    SLM_ASSIGN_OR_RETURN(const double score, Score(b, c, shared));
    scores.push_back(score);
  }
  return scores;
}

Proportion ProportionOf(int64_t right, int64_t n) {
  Proportion p{.right = right, .n = n};
  if (n == 0) return p;
  constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5 %
  const double count = static_cast<double>(n), z2 = kZ * kZ / count;
  p.share = static_cast<double>(right) / count;
  const double centre = (p.share + z2 / 2) / (1 + z2);
  const double half = std::sqrt(z2 * (p.share * (1 - p.share) + z2 / 4)) / (1 + z2);
  p.low = right == 0 ? 0 : centre - half;
  p.high = right == n ? 1 : centre + half;
  return p;
}

}  // namespace slm::eval
