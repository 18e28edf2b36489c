// Reading problems and what their answers say; see problems.h. GSM8K after its paper (arXiv 2110.14168: the final answer follows "####")
// and lm-evaluation-harness; HumanEval after arXiv 2107.03374 (where an answer ends).
#include "eval/problems.h"

#include "eval/jsonl.h"

namespace slm::eval {
namespace {

using nlohmann::json;

bool Has(const json& o, const char* name) { return o.is_object() && o.contains(name); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

Problem FromHumanEval(const json& o) {
  Problem p{.kind = ProblemKind::kCode,
            .prompt = TextField(o, "prompt"),
            .answers = {},
            .solution = {},
            .test = TextField(o, "test"),
            .entry_point = TextField(o, "entry_point")};
  for (const char c : p.entry_point)
    if (!IsDigit(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '_')
      throw Fault{std::string("\"entry_point\" is not a name")};
  if (p.entry_point.empty() || IsDigit(p.entry_point[0])) throw Fault{std::string("\"entry_point\" is not a name")};
  if (Has(o, "canonical_solution")) p.solution = TextField(o, "canonical_solution");
  return p;
}

Problem FromGsm8k(const json& o) {
  const std::string answer = TextField(o, "answer");
  Problem p{.kind = ProblemKind::kNumber,
            .prompt = "Question: " + TextField(o, "question") + "\nAnswer:",
            .answers = {MarkedNumber(answer)},
            .solution = " " + answer,
            .test = {},
            .entry_point = {}};
  if (p.answers[0].empty()) throw Fault{std::string("\"answer\" has no number after \"####\"")};
  return p;
}

Problem FromPlain(const json& o) {
  Problem p{.kind = ProblemKind::kText, .prompt = TextField(o, "prompt"), .answers = {}, .solution = {}, .test = {}, .entry_point = {}};
  const json& answer = Field(o, "answer");
  if (answer.is_array()) {
    if (answer.empty() || answer.size() > 64) throw Fault{std::string("\"answer\" is not a list of 1 to 64 references")};
    for (const json& a : answer) {
      if (!a.is_string()) throw Fault{std::string("a reference is not a string")};
      p.answers.push_back(a.get<std::string>());
    }
  } else {
    p.answers.push_back(TextField(o, "answer"));
  }
  p.solution = p.answers[0];
  return p;
}

Problem FromLine(const json& o) {
  if (Has(o, "entry_point") || Has(o, "test")) return FromHumanEval(o);
  if (Has(o, "prompt")) return FromPlain(o);
  if (Has(o, "question")) return FromGsm8k(o);
  throw Fault{std::string("has none of the fields \"prompt\" and \"question\"")};
}

// A number that begins at text[at], with what belongs to it: sign, digits with commas, a fraction. Its length, 0 for none.
size_t NumberAt(std::string_view text, size_t at) {
  size_t i = at;
  if (i < text.size() && text[i] == '-') ++i;
  if (i < text.size() && text[i] == '$') ++i;
  const size_t digits = i;
  while (i < text.size() && (IsDigit(text[i]) || (text[i] == ',' && i > digits && i + 1 < text.size() && IsDigit(text[i + 1])))) ++i;
  if (i == digits) return 0;
  if (i + 1 < text.size() && text[i] == '.' && IsDigit(text[i + 1])) {
    ++i;
    while (i < text.size() && IsDigit(text[i])) ++i;
  }
  return i - at;
}

}  // namespace

const char* ProblemKindName(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kText: return "text";
    case ProblemKind::kNumber: return "number";
    case ProblemKind::kCode: return "code";
  }
  return "";
}

Result<std::vector<Problem>> ReadProblems(std::string_view jsonl, int64_t limit) {
  std::vector<Problem> problems;
  SLM_RETURN_IF_ERROR(EachLine(jsonl, [&](const json& o) {
    Problem p = FromLine(o);
    if (!problems.empty() && p.kind != problems.front().kind)
      throw Fault{
          fmt::format("is a {} problem, the first one is a {} problem", ProblemKindName(p.kind), ProblemKindName(problems.front().kind))};
    problems.push_back(std::move(p));
    return limit <= 0 || static_cast<int64_t>(problems.size()) < limit;
  }));
  if (problems.empty()) return Error(Code::kInvalidArgument, "no question in the file", "a question is a JSON object on a line of its own");
  return problems;
}

std::vector<std::string> StopsOf(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kText: return {"\n"};
    case ProblemKind::kNumber: return {"Question:"};
    case ProblemKind::kCode: return {"\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@", "\n```"};
  }
  return {};
}

std::string Normalised(std::string_view number) {
  std::string s;
  for (const char c : number)
    if (c != ',' && c != '$' && c != ' ') s += c;
  while (!s.empty() && s.back() == '.') s.pop_back();
  const bool minus = !s.empty() && s[0] == '-';
  if (minus) s.erase(0, 1);
  const size_t point = std::min(s.find('.'), s.size());
  if (s.empty() || !std::all_of(s.begin(), s.end(), [](char c) { return IsDigit(c) || c == '.'; }) || s.find('.', point + 1) < s.size())
    return {};
  std::string whole = s.substr(0, point), part = s.substr(std::min(point + 1, s.size()));
  while (!part.empty() && part.back() == '0') part.pop_back();
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  if (whole.empty()) whole = "0";
  const std::string value = part.empty() ? whole : whole + "." + part;
  return minus && value != "0" ? "-" + value : value;
}

std::string MarkedNumber(std::string_view answer) {
  const size_t mark = answer.find("####");
  if (mark == answer.npos) return {};
  size_t at = mark + 4;
  while (at < answer.size() && answer[at] == ' ') ++at;
  if (at < answer.size() && answer[at] == '$') ++at;  // "$-5", "$ 5"
  while (at < answer.size() && answer[at] == ' ') ++at;
  return Normalised(answer.substr(std::min(at, answer.size()), NumberAt(answer, at)));
}

std::string LastNumber(std::string_view answer) {
  std::string last;
  for (size_t at = 0; at < answer.size();) {
    const bool starts = at == 0 || !IsDigit(answer[at - 1]);
    // "5-3": the minus between digits is no sign
    const bool between = answer[at] == '-' && at > 0 && IsDigit(answer[at - 1]);
    const size_t n = starts && !between ? NumberAt(answer, at) : 0;
    if (n > 0) last = Normalised(answer.substr(at, n));
    at += n > 0 ? n : 1;
  }
  return last;
}

std::string TestProgram(const Problem& p, std::string_view answer, std::string_view passed) {
  std::string s = p.prompt;
  s += answer;
  s += "\n\n" + p.test + "\n\ncheck(" + p.entry_point + ")\n";
  s += passed;
  s += "\n";
  return s;
}

}  // namespace slm::eval
