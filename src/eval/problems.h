// Tasks that a model answers by writing: which shapes a file may have, what of the answer counts, and when it is right. The caller
// generates (this room knows no tokenizer) and, for code, runs what was written.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace slm::eval {

enum class ProblemKind : uint8_t {
  kText,    // our own shape: the whole answer, compared with one or several references
  kNumber,  // GSM8K: the number at the end
  kCode,    // HumanEval: a Python function that must pass its tests
};
const char* ProblemKindName(ProblemKind kind);  // "text", "number", "code"

struct Problem {
  ProblemKind kind = ProblemKind::kText;
  std::string prompt;
  std::vector<std::string> answers;  // kText: references, at least 1; kNumber: the number, as Normalised
  std::string solution;              // what follows the prompt in a solved example
  std::string test, entry_point;     // kCode
};

// The problems of a file with one JSON object a line, at most `limit` of them (0: all), all of one kind:
//   {"prompt", "answer": "" or [..]}                        our own; an answer may have several references
//   {"question", "answer": "... #### 18"}                   GSM8K: "Question: <question>\nAnswer:" + " <answer>"
//   {"task_id", "prompt", "entry_point", "test"}            HumanEval, with "canonical_solution" or without
// Errors: kCorrupt, "line n: ..."; kInvalidArgument for no line.
Result<std::vector<Problem>> ReadProblems(std::string_view jsonl, int64_t limit = 0);

// Where an answer ends: at the first of these, besides the model's end tokens.
std::vector<std::string> StopsOf(ProblemKind kind);

// ---- GSM8K
// The number after the first "####"; empty without one. As Normalised.
std::string MarkedNumber(std::string_view answer);
// The last number of the text; empty without one. As Normalised.
std::string LastNumber(std::string_view answer);
// "$1,234.50" -> "1234.5", "007" -> "7", "-0" -> "0": without currency, thousands' commas, a full stop at the end and zeros that say
// nothing. Empty when nothing is left that is a number.
std::string Normalised(std::string_view number);

// ---- HumanEval
// The file that is run: prompt, the answer, the tests, a call of check, and at last a line that only runs when all of it passed and calls
// `passed`, which the caller puts there as Python source.
std::string TestProgram(const Problem& problem, std::string_view answer, std::string_view passed);

}  // namespace slm::eval
