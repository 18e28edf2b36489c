// Files of multiple-choice questions; see tasks.h for their shapes. Prompts follow lm-evaluation-harness (tasks arc_challenge, hellaswag,
// mmlu, piqa).
#include <charconv>

#include "eval/jsonl.h"
#include "eval/tasks.h"

namespace slm::eval {
namespace {

using nlohmann::json;

const json& List(const json& object, const char* name) {
  const json& v = Field(object, name);
  if (!v.is_array() || v.size() < 2 || v.size() > 64) throw Fault{fmt::format("\"{}\" is not a list of 2 to 64 choices", name)};
  return v;
}

// A number, or a string that is one (HellaSwag has both).
int Index(const json& object, const char* name, size_t n) {
  const json& v = Field(object, name);
  int64_t i = -1;
  if (v.is_number_unsigned()) i = v.get<uint64_t>() < n ? static_cast<int64_t>(v.get<uint64_t>()) : -1;
  if (v.is_string() && v.get_ref<const std::string&>().size() == 1) i = v.get_ref<const std::string&>()[0] - '0';
  if (i < 0 || i >= static_cast<int64_t>(n)) throw Fault{fmt::format("\"{}\" is not the index of one of {} choices", name, n)};
  return static_cast<int>(i);
}

std::vector<std::string> Strings(const json& list) {
  std::vector<std::string> out;
  for (const json& c : list) {
    if (!c.is_string() || c.get_ref<const std::string&>().empty()) throw Fault{std::string("a choice is not a string, or empty")};
    out.push_back(c.get<std::string>());
  }
  return out;
}

Question FromPlain(const json& o) {
  Question q{.prompt = TextField(o, "prompt")};
  q.choices = Strings(List(o, "choices"));
  q.answer = Index(o, "answer", q.choices.size());
  return q;
}

Question FromArc(const json& o) {
  const json& question = Field(o, "question");
  Question q{.prompt = "Question: " + TextField(question, "stem") + "\nAnswer:", .choices = {}, .answer = -1};
  const std::string key = TextField(o, "answerKey");
  for (const json& c : List(question, "choices")) {
    if (TextField(c, "label") == key) q.answer = static_cast<int>(q.choices.size());
    q.choices.push_back(" " + TextField(c, "text"));
  }
  if (q.answer < 0) throw Fault{fmt::format("\"answerKey\" is \"{}\", no choice has that label", key)};
  return q;
}

void ReplaceAll(std::string& s, std::string_view from, std::string_view to) {
  for (size_t at = s.find(from); at != std::string::npos; at = s.find(from, at + to.size())) s.replace(at, from.size(), to);
}

std::string Stripped(std::string s) {
  const char* space = " \t\r\n";
  s.erase(0, std::min(s.find_first_not_of(space), s.size()));
  s.erase(s.find_last_not_of(space) + 1);
  return s;
}

// HellaSwag's texts from WikiHow carry marks in brackets ("[header]", "[title]", "[substeps]").
std::string Cleaned(std::string s) {
  s = Stripped(std::move(s));
  ReplaceAll(s, " [title]", ". ");
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t close = s[at] == '[' ? s.find(']', at) : std::string::npos;
    if (close != std::string::npos) {
      at = close + 1;
    } else {
      out += s[at++];
    }
  }
  ReplaceAll(out, "  ", " ");
  return out;
}

// First letter large, the others small, as Python's capitalize does to ASCII.
std::string Capitalized(std::string s) {
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] >= 'A' && s[i] <= 'Z' && i > 0) s[i] = static_cast<char>(s[i] - 'A' + 'a');
    if (s[i] >= 'a' && s[i] <= 'z' && i == 0) s[i] = static_cast<char>(s[i] - 'a' + 'A');
  }
  return s;
}

Question FromHellaSwag(const json& o) {
  Question q{.prompt = Cleaned(TextField(o, "activity_label") + ": " + TextField(o, "ctx_a") + " " + Capitalized(TextField(o, "ctx_b")))};
  for (const json& c : List(o, "endings")) {
    if (!c.is_string()) throw Fault{std::string("an ending is not a string")};
    q.choices.push_back(" " + Cleaned(c.get<std::string>()));
  }
  q.answer = Index(o, "label", q.choices.size());
  return q;
}

Question FromMmlu(const json& o) {
  constexpr size_t kLetters = 10;
  const std::vector<std::string> choices = Strings(List(o, "choices"));
  if (choices.size() > kLetters) throw Fault{fmt::format("{} choices, the letters end at {}", choices.size(), kLetters)};
  Question q{.prompt = Stripped(TextField(o, "question")), .choices = {}, .answer = Index(o, "answer", choices.size())};
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    q.prompt += "\n" + letter + ". " + choices[i];
    q.choices.push_back(" " + letter);
  }
  q.prompt += "\nAnswer:";
  std::string subject = o.contains("subject") ? TextField(o, "subject") : std::string();
  std::replace(subject.begin(), subject.end(), '_', ' ');
  if (!subject.empty()) q.preamble = "The following are multiple choice questions (with answers) about " + subject + ".\n\n";
  return q;
}

// Labels that lie in a file of their own, taken in turn.
class Labels {
 public:
  explicit Labels(std::string_view text) : text_(text) {}
  int Next(size_t n_choices) {
    while (!text_.empty()) {
      std::string_view line = NextLine(&text_);
      ++number_;
      if (IsBlank(line)) continue;
      line.remove_prefix(line.find_first_not_of(" \t"));
      size_t label = n_choices;
      const char* end = line.data() + line.size();
      const auto [at, failed] = std::from_chars(line.data(), end, label);
      if (failed != std::errc() || !IsBlank({at, static_cast<size_t>(end - at)}) || label >= n_choices)
        throw Fault{fmt::format("line {} of the labels is not the index of one of {} choices", number_, n_choices)};
      return static_cast<int>(label);
    }
    throw Fault{std::string("no field \"label\", and no line of the labels is left for it")};
  }

 private:
  std::string_view text_;
  int64_t number_ = 0;
};

Question FromPiqa(const json& o, Labels& labels) {
  Question q{.prompt = "Question: " + TextField(o, "goal") + "\nAnswer:",
             .choices = {" " + TextField(o, "sol1"), " " + TextField(o, "sol2")},
             .answer = 0};
  q.answer = o.contains("label") ? Index(o, "label", 2) : labels.Next(2);
  return q;
}

bool Has(const json& o, const char* name) { return o.is_object() && o.contains(name); }

Question FromLine(const json& o, Labels& labels) {
  if (Has(o, "prompt")) return FromPlain(o);
  if (Has(o, "goal")) return FromPiqa(o, labels);
  if (Has(o, "question") && o["question"].is_string()) return FromMmlu(o);
  if (Has(o, "question")) return FromArc(o);
  if (Has(o, "endings")) return FromHellaSwag(o);
  throw Fault{std::string("has none of the fields \"prompt\", \"question\", \"endings\" and \"goal\"")};
}

}  // namespace

Result<std::vector<Question>> ReadQuestions(std::string_view jsonl, int64_t limit, std::string_view labels) {
  std::vector<Question> questions;
  Labels own(labels);
  SLM_RETURN_IF_ERROR(EachLine(jsonl, [&](const json& o) {
    questions.push_back(FromLine(o, own));
    return limit <= 0 || static_cast<int64_t>(questions.size()) < limit;
  }));
  if (questions.empty())
    return Error(Code::kInvalidArgument, "no question in the file", "a question is a JSON object on a line of its own");
  return questions;
}

bool HasChoices(std::string_view jsonl) {
  bool has = false;
  const Status read = EachLine(jsonl, [&](const json& o) {
    has = Has(o, "choices") || Has(o, "endings") || Has(o, "goal") || (Has(o, "question") && o["question"].is_object());
    return false;
  });
  return read.ok() && has;
}

int64_t ChoiceLength(std::string_view choice) {
  choice.remove_prefix(std::min(choice.find_first_not_of(" \t\r\n"), choice.size()));
  int64_t n = 0;
  for (const char c : choice) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace slm::eval
