// slm eval MODEL tasks --file F.jsonl for tasks that a model answers by writing: GSM8K, HumanEval, and a user's own questions.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "decode/decode.h"
#include "eval/problems.h"
#include "eval/text_scores.h"
#include "eval_options.h"
#include "generate_flags.h"
#include "output_file.h"
#include "prompt.h"
#include "sandbox/sandbox.h"

namespace slm::cli {
namespace {

using eval::Problem;
using eval::ProblemKind;
using nlohmann::ordered_json;

class Keeper final : public decode::TokenSink {
 public:
  void OnText(std::string_view utf8) override { text += utf8; }
  std::string text;
};

// One written answer and what it is worth.
struct Answer {
  std::string text;
  bool right = false;        // text: equal to a reference, normalised; number: the one after "####"; code: passed
  bool last = false;         // number: the last one of the text
  bool timeout = false;      // code
  double f1 = 0, rouge = 0;  // text: the best over the references
  eval::BleuCounts bleu;
};

struct Answers {
  std::vector<Answer> all;
  std::string isa;
  int32_t bos = -1;
  std::vector<bool> Right() const {
    std::vector<bool> right;
    for (const Answer& a : all) right.push_back(a.right);
    return right;
  }
};

// The problems with the solved examples of --shots-file before their prompts.
Result<std::vector<Problem>> ReadAll(const EvalOptions& o, const TaskFile& file) {
  auto read = eval::ReadProblems(file.view(), o.max_items);
  if (!read.ok()) return read.error().At(o.file);
  std::vector<Problem> problems = read.Take();
  if (o.shots_file.empty()) return problems;
  if (problems[0].kind == ProblemKind::kCode)
    return Error(Code::kInvalidArgument, "--shots-file is not for code: a solved example would be run", "leave it out");
  SLM_ASSIGN_OR_RETURN(const TaskFile shots, OpenTaskFile(o.shots_file, "--shots-file"));
  const auto solved = eval::ReadProblems(shots.view(), o.shots);
  if (!solved.ok()) return solved.error().At(o.shots_file);
  std::string examples;
  for (const Problem& p : solved.value()) examples += p.prompt + p.solution + "\n\n";
  for (Problem& p : problems) p.prompt = examples + p.prompt;
  return problems;
}

Result<std::vector<int32_t>> PromptIds(const OpenedModel& m, const EvalOptions& o, const std::string& prompt, int32_t bos) {
  if (o.chat) return EncodeChat(m, {{"user", prompt}});
  SLM_ASSIGN_OR_RETURN(auto ids, m.tokenizer->Encode(prompt, text::SpecialTokens::kPlain, text::AddBosEos::kNo));
  if (bos >= 0) ids.insert(ids.begin(), bos);
  return ids;
}

Result<decode::GenerateOptions> OptionsOf(const OpenedModel& m, const EvalOptions& o, ProblemKind kind) {
  GenerateFlags flags;
  flags.options.max_tokens = o.max_tokens;
  if (!o.chat) flags.options.stop = eval::StopsOf(kind);
  flags.options.first_space = o.chat ? text::FirstSpace::kStrip : text::FirstSpace::kKeep;
  return FinishFlags(flags, m);
}

// What of a chat answer is code: the first block in fences, which defines the function anew after the one of the prompt.
std::string CodeOf(const std::string& answer) {
  const size_t fence = answer.find("```"), begin = fence == answer.npos ? answer.npos : answer.find('\n', fence);
  const std::string code = begin == answer.npos ? answer : answer.substr(begin + 1, answer.find("```", begin) - begin - 1);
  return "    pass\n\n" + code;
}

Status ScoreCode(const Problem& p, const EvalOptions& o, const std::string& token, Answer* a) {
  const std::string code = o.chat ? CodeOf(a->text) : a->text;
  SLM_ASSIGN_OR_RETURN(const RunVerdict verdict,
                       RunPython(eval::TestProgram(p, code, PassLine(token)), token, {.seconds = o.code_seconds}));
  a->right = verdict == RunVerdict::kPassed;
  a->timeout = verdict == RunVerdict::kTimeout;
  return Ok();
}

Status Score(const Problem& p, const EvalOptions& o, const std::string& token, Answer* a) {
  switch (p.kind) {
    case ProblemKind::kNumber:
      a->right = eval::MarkedNumber(a->text) == p.answers[0];
      a->last = eval::LastNumber(a->text) == p.answers[0];
      return Ok();
    case ProblemKind::kCode: return ScoreCode(p, o, token, a);
    case ProblemKind::kText: break;
  }
  for (const std::string& reference : p.answers) {
    a->right |= eval::NormalisedAnswer(a->text) == eval::NormalisedAnswer(reference);
    a->f1 = std::max(a->f1, eval::TokenF1(a->text, reference));
    a->rouge = std::max(a->rouge, eval::RougeL(a->text, reference));
  }
  a->bleu = eval::CountBleu(a->text, p.answers);
  return Ok();
}

// Letters that a program cannot guess before it was written.
std::string NewToken() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

Result<Answers> AnswerAll(Io& io, const EvalOptions& o, const OpenOptions& open, const std::vector<Problem>& problems) {
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, open));
  Answers answers;
  answers.isa = m.backend->capabilities().isa;
  SLM_ASSIGN_OR_RETURN(answers.bos, BeginToken(*m.tokenizer, o.bos, open.model));
  SLM_ASSIGN_OR_RETURN(const decode::GenerateOptions options, OptionsOf(m, o, problems[0].kind));
  decode::Session session(*m.backend, *m.tokenizer);
  const decode::CancelFlag cancel(*io.cancel);
  const std::string token = NewToken();
  const size_t n = problems.size();
  for (size_t i = 0; i < n; ++i) {
    SLM_ASSIGN_OR_RETURN(const auto ids, PromptIds(m, o, problems[i].prompt, answers.bos));
    Keeper keeper;
    const auto stats = session.Generate(ids, options, keeper, cancel);
    if (!stats.ok()) return stats.error().At(fmt::format("{}: task {}", open.model, i + 1));
    if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
    Answer a{.text = std::move(keeper.text), .right = false, .last = false, .timeout = false, .f1 = 0, .rouge = 0, .bleu = {}};
    SLM_RETURN_IF_ERROR(Score(problems[i], o, token, &a));
    answers.all.push_back(std::move(a));
    if (!io.json && (i + 1) * 10 / n > i * 10 / n)
      io.Note(fmt::format("{:3d} %  {} of {} tasks  {}", (i + 1) * 100 / n, i + 1, n, open.model));
  }
  return answers;
}

// Names of the scores, in JSON and for a reader.
struct Names {
  const char *json, *text;
};
Names RightOf(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kText: return {"exact", "exact match"};
    case ProblemKind::kNumber: return {"exact", "right after ####"};
    case ProblemKind::kCode: return {"passed", "passed"};
  }
  return {};
}

eval::Proportion ShareOf(const Answers& a, bool Answer::*what) {
  const auto right = std::count_if(a.all.begin(), a.all.end(), [&](const Answer& one) { return one.*what; });
  return eval::ProportionOf(right, static_cast<int64_t>(a.all.size()));
}

eval::Interval MeanOf(const Answers& a, double Answer::*what) {
  std::vector<double> scores;
  for (const Answer& one : a.all) scores.push_back(one.*what);
  return eval::BootstrapMean(scores);
}

struct Summary {
  ordered_json json;
  std::string text;
};

void Add(Summary* s, const char* json, const char* text, const eval::Interval& i) {
  s->json[json] = {{"mean", i.mean}, {"low", i.low}, {"high", i.high}};
  s->text += fmt::format("{:<26} {:.4f}  (95 %: {:.4f} to {:.4f})\n", text, i.mean, i.low, i.high);
}

Summary Summarise(const Answers& a, ProblemKind kind) {
  Summary s;
  const auto add = [&](const char* json, const char* text, bool Answer::*what) {
    s.json[json] = ShareJson(ShareOf(a, what));
    s.text += ShareText(text, ShareOf(a, what));
  };
  add(RightOf(kind).json, RightOf(kind).text, &Answer::right);
  if (kind == ProblemKind::kNumber) add("last_number", "the last number is right", &Answer::last);
  if (kind == ProblemKind::kCode) s.json["timeouts"] = ShareOf(a, &Answer::timeout).right;
  if (kind != ProblemKind::kText) return s;
  std::vector<eval::BleuCounts> counts;
  for (const Answer& one : a.all) counts.push_back(one.bleu);
  Add(&s, "f1", "F1 of words", MeanOf(a, &Answer::f1));
  Add(&s, "rouge_l", "ROUGE-L", MeanOf(a, &Answer::rouge));
  Add(&s, "bleu", "BLEU of all", eval::BootstrapBleu(counts));
  return s;
}

Status WriteAnswers(Io& io, const std::string& path, const Answers& answers, ProblemKind kind) {
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  for (const Answer& a : answers.all) {
    ordered_json line = {{"answer", a.text}, {RightOf(kind).json, a.right}};
    if (kind == ProblemKind::kNumber) line["last_number"] = a.last;
    if (kind == ProblemKind::kCode) line["timeout"] = a.timeout;
    if (kind == ProblemKind::kText) line.update({{"f1", a.f1}, {"rouge_l", a.rouge}});
    const std::string text = line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    SLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text.data(), text.size()))));
  }
  return file.Commit();
}

Status CheckCode(const EvalOptions& o, ProblemKind kind) {
  if (kind != ProblemKind::kCode && o.run_code)
    return Error(Code::kInvalidArgument, "--run-code is for files like HumanEval's", "leave it out");
  if (kind != ProblemKind::kCode) return Ok();
  if (!o.run_code)
    return Error(Code::kInvalidArgument, o.file + ": to judge it, programs that a model wrote must be run", "allow that with --run-code");
  return CheckSandbox();
}

}  // namespace

Result<int> EvalProblems(Io& io, const EvalOptions& o, const TaskFile& file) {
  SLM_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ReadAll(o, file));
  const ProblemKind kind = problems[0].kind;
  if (!o.labels.empty()) return Error(Code::kInvalidArgument, "--labels is for multiple choice", "leave it out");
  SLM_RETURN_IF_ERROR(CheckCode(o, kind));
  SLM_ASSIGN_OR_RETURN(const Answers m, AnswerAll(io, o, o.open, problems));
  if (!o.answers.empty()) SLM_RETURN_IF_ERROR(WriteAnswers(io, o.answers, m, kind));
  const Summary mine = Summarise(m, kind);
  ordered_json j = {{"items", problems.size()}, {"kind", eval::ProblemKindName(kind)}};
  j.update(mine.json);
  std::string text = mine.text;
  if (!o.base.empty()) {
    const OpenOptions base = OpenBase(io, o, o.open);
    SLM_ASSIGN_OR_RETURN(const Answers b, AnswerAll(io, o, base, problems));
    const Summary its = Summarise(b, kind);
    const Flips flips = FlipsOf(m.Right(), b.Right());
    j["base"] = {{"model", o.base}, {"compute", base.compute}};
    j["base"].update(its.json);
    j["flips"] = {{RightOf(kind).json, FlipsJson(flips)}};
    text += "of the base:\n" + its.text + FlipsText("flips", flips);
  }
  if (io.json) {
    j["chat"] = o.chat;
    j["shots"] = o.shots_file.empty() ? 0 : o.shots;
    j["max_tokens"] = o.max_tokens;
    j["bos"] = m.bos >= 0 ? ordered_json(m.bos) : ordered_json(nullptr);
    j["file_sha256"] = file.file.sha256;
    j["isa"] = m.isa;
    j["kv"] = o.open.kv;
    j["compute"] = o.open.compute;
    io.PrintJson(j);
  } else {
    io.Print(text);
    io.Print(fmt::format("({} tasks of {}, sha256 {}…, {})\n", problems.size(), o.file, file.file.sha256.substr(0, 12),
                         o.chat ? "chat template" : "plain prompts"));
  }
  return int{kExitOk};
}

}  // namespace slm::cli
