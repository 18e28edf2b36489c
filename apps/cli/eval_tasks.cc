// slm eval MODEL tasks --file F.jsonl: multiple choice by log-likelihood, with intervals, and flips against a base.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "eval/tasks.h"
#include "eval_options.h"
#include "open_ort.h"
#include "output_file.h"
#include "store.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

// What a model chose: right or not for each question, by log-likelihood and by log-likelihood a character.
struct Answers {
  std::vector<bool> plain, normalised;
  std::vector<std::vector<double>> scores;  // ln P of each choice
  int32_t bos = -1;
  std::string isa;
};

// Prompt and choice encoded as one text, because tokens may reach over their border: scored is what differs from the prompt alone. White
// space at the prompt's end counts as the choice's, which begins with it.
Result<eval::ChoiceTokens> EncodeChoice(const text::Tokenizer& t, const eval::Question& q, const std::string& choice, int32_t bos) {
  const std::string_view prompt = q.prompt;
  const std::string_view head = prompt.substr(0, std::min(prompt.find_last_not_of(" \t\r\n") + 1, prompt.size()));
  SLM_ASSIGN_OR_RETURN(auto whole, t.Encode(q.prompt + choice, text::SpecialTokens::kPlain, text::AddBosEos::kNo));
  SLM_ASSIGN_OR_RETURN(auto before, t.Encode(head, text::SpecialTokens::kPlain, text::AddBosEos::kNo));
  const auto differs = std::mismatch(whole.begin(), whole.end(), before.begin(), before.end()).first;
  size_t first = static_cast<size_t>(differs - whole.begin());
  if (bos >= 0) {
    whole.insert(whole.begin(), bos);
    ++first;
  }
  return eval::ChoiceTokens{std::move(whole), first};
}

Result<Answers> AnswerAll(Io& io, const EvalOptions& o, const OpenOptions& open, const std::vector<eval::Question>& questions) {
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, open));
  Answers a;
  SLM_ASSIGN_OR_RETURN(a.bos, BeginToken(*m.tokenizer, o.bos, open.model));
  a.isa = m.backend->capabilities().isa;
  const size_t n = questions.size();
  for (size_t i = 0; i < n; ++i) {
    const eval::Question& q = questions[i];
    std::vector<eval::ChoiceTokens> choices;
    for (const std::string& choice : q.choices) {
      SLM_ASSIGN_OR_RETURN(eval::ChoiceTokens tokens, EncodeChoice(*m.tokenizer, q, choice, a.bos));
      choices.push_back(std::move(tokens));
    }
    auto scored = eval::ScoreChoices(*m.backend, choices);
    if (!scored.ok()) return scored.error().At(fmt::format("{}: question {}", open.model, i + 1));
    std::vector<double> scores = scored.Take();
    const auto best = [&] { return std::max_element(scores.begin(), scores.end()) - scores.begin(); };
    a.plain.push_back(best() == q.answer);
    a.scores.push_back(scores);
    for (size_t c = 0; c < scores.size(); ++c) scores[c] /= static_cast<double>(std::max<int64_t>(1, eval::ChoiceLength(q.choices[c])));
    a.normalised.push_back(best() == q.answer);
    if (!io.json && (i + 1) * 10 / n > i * 10 / n)
      io.Note(fmt::format("{:3d} %  {} of {} questions  {}", (i + 1) * 100 / n, i + 1, n, open.model));
    if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
  }
  return a;
}

eval::Proportion Accuracy(const std::vector<bool>& right) {
  return eval::ProportionOf(std::count(right.begin(), right.end(), true), static_cast<int64_t>(right.size()));
}

}  // namespace

ordered_json ShareJson(const eval::Proportion& p) { return {{"share", p.share}, {"low", p.low}, {"high", p.high}, {"right", p.right}}; }

std::string ShareText(const char* name, const eval::Proportion& p) {
  return fmt::format("{:<26} {:.2f} %  (95 %: {:.2f} to {:.2f} %, {} of {})\n", name, 100 * p.share, 100 * p.low, 100 * p.high, p.right,
                     p.n);
}

Flips FlipsOf(const std::vector<bool>& model, const std::vector<bool>& base) {
  Flips f;
  for (size_t i = 0; i < model.size(); ++i, ++f.n) {
    f.lost += base[i] && !model[i];
    f.gained += model[i] && !base[i];
  }
  return f;
}
ordered_json FlipsJson(const Flips& f) { return {{"share", f.share()}, {"lost", f.lost}, {"gained", f.gained}}; }
std::string FlipsText(const char* name, const Flips& f) {
  return fmt::format("{:<26} {:.2f} %  ({} lost, {} gained)\n", name, 100 * f.share(), f.lost, f.gained);
}

OpenOptions OpenBase(const Io& io, const EvalOptions& o, OpenOptions model) {
  model.model = o.base;
  if (!o.base_compute.empty()) model.compute = o.base_compute;
  if (!o.base_device.empty()) model.device = o.base_device;
  model.prefill_model = model.prefill_device = model.decode_device = "";  // of MODEL: the base is one back end
  if (const auto path = ResolveModel(io, o.base); path.ok() && !TakesOrt(model, path.value())) model.ort = {};
  return model;
}

namespace {

// The questions, each with the solved examples that --shots-file gives before its prompt.
Result<std::vector<eval::Question>> ReadAll(const EvalOptions& o, const TaskFile& file) {
  TaskFile labels;
  if (!o.labels.empty()) {
    SLM_ASSIGN_OR_RETURN(labels, OpenTaskFile(o.labels, "--labels"));
  }
  auto read = eval::ReadQuestions(file.view(), o.max_items, labels.view());
  if (!read.ok()) return read.error().At(o.file);
  std::string examples;
  if (!o.shots_file.empty()) {
    SLM_ASSIGN_OR_RETURN(const TaskFile shots, OpenTaskFile(o.shots_file, "--shots-file"));
    const auto solved = eval::ReadQuestions(shots.view(), o.shots);
    if (!solved.ok()) return solved.error().At(o.shots_file);
    for (const eval::Question& q : solved.value()) examples += q.prompt + q.choices[static_cast<size_t>(q.answer)] + "\n\n";
  }
  std::vector<eval::Question> questions = read.Take();
  for (eval::Question& q : questions) q.prompt = q.preamble + examples + q.prompt;
  return questions;
}

// A line for each question: what the model found, and what is right.
Status WriteScores(Io& io, const std::string& path, const Answers& m, const std::vector<eval::Question>& questions) {
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io));
  for (size_t i = 0; i < questions.size(); ++i) {
    const ordered_json line = {
        {"scores", m.scores[i]}, {"answer", questions[i].answer}, {"acc", bool{m.plain[i]}}, {"acc_norm", bool{m.normalised[i]}}};
    const std::string text = line.dump() + "\n";
    SLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text.data(), text.size()))));
  }
  return file.Commit();
}

Status CheckForChoices(const EvalOptions& o) {
  const auto no = [](const char* option) {
    return Error(Code::kInvalidArgument, std::string(option) + " is for tasks that a model answers by writing", "leave it out");
  };
  if (o.chat) return no("--chat");
  if (o.run_code) return no("--run-code");
  return Ok();
}

// --answers must not be one of the files that are read.
Status CheckAnswersPath(const Io& io, const EvalOptions& o) {
  if (o.answers.empty()) return Ok();
  for (const std::string& model : {o.open.model, o.base}) {
    if (model.empty()) continue;
    SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, model));
    SLM_RETURN_IF_ERROR(RefuseModelFile(o.answers, path, Neighbours::kSameExtension));
  }
  for (const std::string& read : {o.file, o.labels, o.shots_file}) SLM_RETURN_IF_ERROR(RefuseInput(o.answers, read));
  return Ok();
}

}  // namespace

Result<int> EvalTasks(Io& io, const EvalOptions& o) {
  SLM_RETURN_IF_ERROR(CheckAnswersPath(io, o));
  SLM_ASSIGN_OR_RETURN(const TaskFile task_file, OpenTaskFile(o.file, "--file"));
  const EvalText& file = task_file.file;
  if (!eval::HasChoices(task_file.view())) return EvalProblems(io, o, task_file);
  SLM_RETURN_IF_ERROR(CheckForChoices(o));
  SLM_ASSIGN_OR_RETURN(const std::vector<eval::Question> questions, ReadAll(o, task_file));
  OpenOptions open = o.open;
  open.logits = backend::LogitsOf::kAllTokens;
  open.chunk = 128;  // rows of logits that memory is taken for
  SLM_ASSIGN_OR_RETURN(const Answers m, AnswerAll(io, o, open, questions));
  if (!o.answers.empty()) SLM_RETURN_IF_ERROR(WriteScores(io, o.answers, m, questions));
  ordered_json j = {{"items", questions.size()}, {"acc", ShareJson(Accuracy(m.plain))}, {"acc_norm", ShareJson(Accuracy(m.normalised))}};
  std::string text = ShareText("accuracy", Accuracy(m.plain)) + ShareText("accuracy, by length", Accuracy(m.normalised));
  if (!o.base.empty()) {  // one model after the other: only what was answered is kept
    const OpenOptions base = OpenBase(io, o, open);
    SLM_ASSIGN_OR_RETURN(const Answers b, AnswerAll(io, o, base, questions));
    const Flips plain = FlipsOf(m.plain, b.plain), normalised = FlipsOf(m.normalised, b.normalised);
    j["base"] = {{"model", o.base},
                 {"acc", ShareJson(Accuracy(b.plain))},
                 {"acc_norm", ShareJson(Accuracy(b.normalised))},
                 {"compute", base.compute}};
    j["flips"] = {{"acc", FlipsJson(plain)}, {"acc_norm", FlipsJson(normalised)}};
    text += ShareText("of the base", Accuracy(b.plain)) + ShareText("of the base, by length", Accuracy(b.normalised));
    text += FlipsText("flips", plain) + FlipsText("flips, by length", normalised);
  }
  if (io.json) {
    j["bos"] = m.bos >= 0 ? ordered_json(m.bos) : ordered_json(nullptr);
    j["file_sha256"] = file.sha256;
    j["isa"] = m.isa;
    j["kv"] = open.kv;
    j["compute"] = open.compute;
    io.PrintJson(j);
  } else {
    io.Print(text);
    io.Print(fmt::format("({} questions of {}, sha256 {}…, BOS {})\n", questions.size(), o.file, file.sha256.substr(0, 12),
                         m.bos >= 0 ? std::to_string(m.bos) : "none"));
  }
  return int{kExitOk};
}

}  // namespace slm::cli
