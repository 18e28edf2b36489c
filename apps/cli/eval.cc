// slm eval MODEL ppl|kld|tasks: perplexity, divergence from a base and multiple choice, through the same runtime that answers users.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checks.h"
#include "eval_options.h"
#include "fetch/digest.h"
#include "progress.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

Result<int> EvalPerplexity(Io& io, const EvalOptions& o) {
  SLM_ASSIGN_OR_RETURN(const EvalText text, OpenText(o.text));
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, OpenForWindows(o, 256)));
  SLM_ASSIGN_OR_RETURN(const int32_t bos, BeginToken(*m.tokenizer, o.bos, o.open.model));
  const eval::WindowOptions windows = WindowsOf(o, bos);
  SLM_ASSIGN_OR_RETURN(const auto ids, EncodeText(*m.tokenizer, text.view(), windows));
  WindowNotes notes(io);
  SLM_ASSIGN_OR_RETURN(const eval::Perplexity r,
                       eval::MeasurePerplexity(*m.backend, ids, windows, [&](int done, int all, const eval::Perplexity& so_far) {
                         return notes(done, all, "perplexity", so_far.ppl);
                       }));
  if (io.json) {
    io.PrintJson({{"tokens", r.scored_tokens},
                  {"windows", r.windows},
                  {"ppl", r.ppl},
                  {"ppl_sigma", r.ppl_sigma},
                  {"mean_nll", r.mean_nll},
                  {"protocol", o.protocol},
                  {"ctx", o.window},
                  {"bos", bos >= 0 ? ordered_json(bos) : ordered_json(nullptr)},
                  {"text_sha256", text.sha256},
                  {"isa", m.backend->capabilities().isa},
                  {"kv", o.open.kv},
                  {"compute", o.open.compute}});
  } else {
    io.Print(fmt::format("perplexity {:.4f} ± {:.4f}  ({} protocol, {} tokens scored in {} windows of {}, BOS {}, text sha256 {}…)\n",
                         r.ppl, r.ppl_sigma, o.protocol, r.scored_tokens, r.windows, o.window, bos >= 0 ? std::to_string(bos) : "none",
                         text.sha256.substr(0, 12)));
  }
  return int{kExitOk};
}

// Options that mean nothing to a measure are refused: the user believes that they count.
Status CheckOptions(const CLI::App& app, const EvalOptions& o) {
  struct Row {
    const char *option, *measures;
  };
  static constexpr Row kRows[] = {{"--text", "ppl kld"},          {"--protocol", "ppl kld"}, {"--window", "ppl kld"},
                                  {"--windows", "ppl kld"},       {"--base", "kld tasks"},   {"--base-compute", "kld tasks"},
                                  {"--base-device", "kld tasks"}, {"--max-kld", "kld"},      {"--file", "tasks"},
                                  {"--items", "tasks"},           {"--labels", "tasks"},     {"--shots-file", "tasks"},
                                  {"--shots", "tasks"},           {"--max-tokens", "tasks"}, {"--chat", "tasks"},
                                  {"--answers", "tasks"},         {"--run-code", "tasks"},   {"--code-seconds", "tasks"}};
  for (const Row& row : kRows)
    if (app.count(row.option) > 0 && std::string_view(row.measures).find(o.what) == std::string_view::npos)
      return Error(Code::kInvalidArgument, fmt::format("{} does not go with {}", row.option, o.what), "leave it out");
  const bool tasks = o.what == "tasks";
  if ((tasks ? o.file : o.text).empty())
    return Error(Code::kInvalidArgument, o.what + " reads a file", tasks ? "give the questions with --file" : "give the text with --text");
  return Ok();
}

Result<int> Eval(Io& io, const EvalOptions& o) {
  if (o.what == "kld") return EvalDivergence(io, o);
  if (o.what == "tasks") return EvalTasks(io, o);
  return EvalPerplexity(io, o);
}

}  // namespace

Result<EvalText> OpenText(const std::string& path, const char* option) {
  constexpr size_t kMost = size_t{256} << 20;
  EvalText text;
  SLM_ASSIGN_OR_RETURN(text.file, MappedFile::Open(path));
  if (text.view().empty())
    return Error(Code::kInvalidArgument, path + ": is empty", fmt::format("give {} the path of a text file", option));
  if (text.view().size() > kMost)
    return Error(Code::kInvalidArgument, path + ": " + FormatBytes(text.view().size()) + " of text, the most is 256 MiB",
                 fmt::format("give {} a part of it", option));
  text.sha256 = Sha256Of(text.view());
  return text;
}

OpenOptions OpenForWindows(const EvalOptions& o, int chunk) {
  OpenOptions open = o.open;
  if (open.context <= 0) {  // the windows' own tokens and the begin token that may come before them
    open.context = o.window + 1;
    open.context_least = o.window;
    open.context_for = "--window " + std::to_string(o.window);
    open.context_from = "--window";
  }
  open.logits = backend::LogitsOf::kAllTokens;
  // Rows of logits that memory is taken for. Calls of one length: the token that a window has over would read all weights for itself.
  const int tokens = o.window + 1, calls = std::max(1, (tokens + chunk / 2) / chunk);
  open.chunk = (tokens + calls - 1) / calls;
  return open;
}

Result<int32_t> BeginToken(const text::Tokenizer& t, const std::string& mode, const std::string& model) {
  if (mode == "never") return int32_t{-1};
  if (!t.prefix().empty()) return int32_t{t.prefix()[0]};
  if (mode == "auto") return int32_t{-1};
  if (t.bos() < 0 && mode == "known") return int32_t{-1};
  if (t.bos() < 0) return Error(Code::kInvalidArgument, model + ": the tokenizer names no begin token", "use --bos auto or --bos never");
  return int32_t{t.bos()};
}

eval::WindowOptions WindowsOf(const EvalOptions& o, int32_t bos) {
  const auto protocol = o.protocol == "llama.cpp" ? eval::Protocol::kLlama : eval::Protocol::kGptq;
  return {.protocol = protocol, .window = o.window, .max_windows = o.max_windows, .bos = bos};
}

Result<std::vector<int32_t>> EncodeText(const text::Tokenizer& t, std::string_view text, const eval::WindowOptions& w) {
  SLM_ASSIGN_OR_RETURN(auto ids, t.Encode(text, text::SpecialTokens::kPlain, text::AddBosEos::kNo));
  if (w.protocol == eval::Protocol::kLlama && w.bos >= 0) ids.insert(ids.begin(), w.bos);
  return ids;
}

bool WindowNotes::operator()(int done, int all, const char* name, double so_far) {
  const int tenth = static_cast<int>(int64_t{done} * 10 / all);
  if (!io_.json && tenth > noted_) {
    noted_ = tenth;
    io_.Note(fmt::format("{:3d} %  {} of {} windows  {} {:.4f}", int64_t{done} * 100 / all, done, all, name, so_far));
  }
  return !io_.cancelled();
}

Body DeclareEval(CLI::App& app, Io& io) {
  auto o = std::make_shared<EvalOptions>();
  AddOpenOptions(app, o->open);
  app.add_option("WHAT", o->what, "ppl: perplexity; kld: divergence from --base; tasks: multiple choice and written answers")
      ->required()
      ->check(CLI::IsMember({"ppl", "kld", "tasks"}));
  app.add_option("--text", o->text, "text file of ppl and kld");
  app.add_option("--protocol", o->protocol, "gptq: every token of each window; llama.cpp: the second half, as llama-perplexity")
      ->check(CLI::IsMember({"gptq", "llama.cpp"}))
      ->capture_default_str();
  app.add_option("--window", o->window, "tokens of a window")->check(CLI::Range(2, 1 << 20))->capture_default_str();
  app.add_option("--windows", o->max_windows, "windows at most; 0: the whole text")->check(FromZero())->capture_default_str();
  app.add_option("--bos", o->bos, "a begin token at each window: auto as the model's tokenizer asks, always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  const char* tasks = "Tasks";
  app.add_option(
         "--file", o->file,
         "tasks, a JSON object a line: {\"prompt\", \"choices\": [..], \"answer\": i} or {\"prompt\", \"answer\"}, or the lines of ARC, "
         "HellaSwag, MMLU, PIQA, GSM8K or HumanEval")
      ->group(tasks);
  app.add_option("--labels", o->labels, "right answers of a --file without them, a number a line (PIQA)")->group(tasks);
  auto* shots = app.add_option("--shots-file", o->shots_file, "solved tasks that come before each prompt, in the shape of --file");
  shots->group(tasks);
  app.add_option("--shots", o->shots, "how many of them")->needs(shots)->check(CLI::Range(1, 64))->capture_default_str()->group(tasks);
  app.add_option("--max-tokens", o->max_tokens, "of a written answer")->check(CLI::Range(1, 1 << 16))->capture_default_str()->group(tasks);
  app.add_flag("--chat", o->chat, "a written answer: put the prompt into the model's chat template")->group(tasks);
  app.add_option("--answers", o->answers, "file to write: every answer and its scores, a JSON object a line")->group(tasks);
  auto* run = app.add_flag("--run-code", o->run_code, "run what the model writes for HumanEval, in isolation (Linux); refused without it");
  run->group(tasks);
  app.add_option("--code-seconds", o->code_seconds, "time that a program has")
      ->needs(run)
      ->check(CLI::Range(1, 600))
      ->capture_default_str()
      ->group(tasks);
  app.add_option("--items", o->max_items, "questions at most; 0: all")->check(FromZero())->capture_default_str()->group(tasks);
  const char* group = "Divergence";
  auto* base = app.add_option("--base", o->base, "the model that MODEL is measured against; for kld with the same vocabulary");
  base->group(group);
  app.add_option("--base-device", o->base_device, "--device of the base; as the model's unless given");
  app.add_option("--base-compute", o->base_compute, "--compute of the base; as the model's unless given")
      ->needs(base)
      ->check(CLI::IsMember({"native", "f32"}))
      ->group(group);
  app.add_option("--max-kld", o->max_kld, "budget of the mean KLD in nats: exit 3 when it is exceeded")
      ->check(NumberFromZero())
      ->group(group);
  app.footer(
      "Figures of different protocols, windows or BOS settings must not be compared.\n\n"
      "Examples:\n  slm eval smollm2-135m-instruct ppl --text wiki.test.raw --window 512 --windows 12\n"
      "  slm eval small.gguf kld --base float.gguf --text wiki.test.raw --max-kld 0.05\n"
      "  slm eval small.gguf tasks --base float.gguf --file ARC-Challenge-Test.jsonl --items 200");
  return [o, &io, &app]() -> Result<int> {
    SLM_RETURN_IF_ERROR(CheckOptions(app, *o));
    return Eval(io, *o);
  };
}

}  // namespace slm::cli
