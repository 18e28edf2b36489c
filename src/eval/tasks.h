// Multiple choice by log-likelihood: which of several continuations a model finds most probable. Text files come in as questions, the
// caller makes tokens of them (this room knows no tokenizer), and every answer is scored through the back end.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace slm::eval {

struct Question {
  std::string prompt;
  std::vector<std::string> choices;  // at least 2; each is appended to the prompt as it is
  int answer = 0;                    // index of the right one
  std::string preamble = {};         // before solved examples and the prompt
};

// The questions of a file with one JSON object a line (blank lines are skipped), at most `limit` of them (0: all). Five shapes, told
// apart by their fields, with the prompts of lm-evaluation-harness:
//   {"prompt", "choices": [..], "answer": i}                                       our own, taken as it is
//   {"question": {"stem", "choices": [{"text", "label"}]}, "answerKey"}            ARC: "Question: <stem>\nAnswer:" + " <text>"
//   {"activity_label", "ctx_a", "ctx_b", "endings": [..], "label": i or "i"}       HellaSwag: "<label>: <a> <B>" + " <ending>", cleaned
//   {"question", "choices": [..], "answer": i, "subject"}                          MMLU: question, "A. .." to "J. ..", "Answer:" + " A"
//   {"goal", "sol1", "sol2", "label": i}                                           PIQA: "Question: <goal>\nAnswer:" + " <sol>"
// `labels`: for lines without "label", a number a line in the order of the questions, as PIQA has them in a file of their own.
// Errors: kCorrupt, "line n: ..." (not JSON, a field missing or of the wrong type, an answer out of range), kInvalidArgument for no line
// and for labels that are too few.
Result<std::vector<Question>> ReadQuestions(std::string_view jsonl, int64_t limit = 0, std::string_view labels = {});

// Is the first object of the file a question with choices (and not a problem of problems.h)?
bool HasChoices(std::string_view jsonl);

// Code points of a choice without the white space before it: what its log-likelihood is divided by.
int64_t ChoiceLength(std::string_view choice);

// Prompt and choice as tokens; tokens[first ...] are scored.
struct ChoiceTokens {
  std::vector<int32_t> tokens;
  size_t first = 0;  // 1 <= first < tokens.size()
};

// ln P(scored tokens | those before) of each choice of one question, nats. What all choices begin with is evaluated once. The back end
// must be open for LogitsOf::kAllTokens; its cache is emptied. Errors: kInvalidArgument when `first` is out of range, and what the
// back end says (kLimit: longer than its context).
Result<std::vector<double>> ScoreChoices(backend::Backend& backend, std::span<const ChoiceTokens> choices);

// How many of n were right, with Wilson's score interval of 95 % (JASA 22, 1927).
struct Proportion {
  int64_t right = 0, n = 0;
  double share = 0, low = 0, high = 0;
};
Proportion ProportionOf(int64_t right, int64_t n);

}  // namespace slm::eval
