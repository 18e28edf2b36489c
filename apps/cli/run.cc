// slm run: one prompt, one streamed answer, and where and how fast it was computed.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "generate_flags.h"
#include "open_model.h"
#include "prompt.h"
#include "read_input.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct RunOptions {
  OpenOptions open;
  GenerateFlags generate;
  std::optional<std::string> prompt;
  std::string file, system;
  std::string json_schema, grammar, draft;  // see CheckEngines
  bool chat = false, raw = false, special = false, stream = false, ids = false, quiet = false;
};

// -p, else -f, else what is piped in (without its last line break, which belongs to the shell).
Result<std::string> PromptText(const Io& io, const RunOptions& o) {
  if (o.prompt) return *o.prompt;
  if (!o.file.empty()) return ReadInput(io, o.file);
  if (isatty(STDIN_FILENO))
    return Error(Code::kInvalidArgument, "no prompt", "give -p TEXT, -f FILE, or pipe text in; slm chat is for talking");
  SLM_ASSIGN_OR_RETURN(std::string text, ReadInput(io, "-"));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// Known options that nothing here can honour. An answer that ignored them would look as if it had.
Status CheckEngines(const RunOptions& o) {
  for (const auto& [option, value] : {std::pair{"--json-schema", &o.json_schema}, std::pair{"--grammar", &o.grammar}})
    if (!value->empty())
      return Error(Code::kUnavailable, std::string(option) + ": this build has no grammar engine",
                   "leave it out and check the answer yourself, or ask for the form in the prompt");
  if (!o.draft.empty())
    return Error(Code::kUnavailable, "--draft: this build has no speculative decoding", "leave it out: the answer is the same without");
  return Ok();
}

bool UsesTemplate(const RunOptions& o, const OpenedModel& opened) { return o.chat || (!o.raw && HasTemplate(opened)); }

Result<std::vector<int32_t>> PromptIds(const RunOptions& o, const OpenedModel& opened, const std::string& text) {
  if (!UsesTemplate(o, opened)) {
    if (!o.system.empty())
      return Error(Code::kInvalidArgument, "--system needs a chat template", "leave out --raw, or put the text into the prompt");
    return EncodeRaw(opened, text, o.special ? Special::kParsed : Special::kPlain);
  }
  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", text});
  return EncodeChat(opened, messages);
}

// Text to stdout as it comes; with --json it is kept, and with --stream a line {"delta":…} is printed for each piece.
class Printer final : public decode::TokenSink {
 public:
  Printer(Io& io, const RunOptions& o) : io_(io), o_(o) {}
  void OnText(std::string_view utf8) override {
    if (!io_.json) return io_.Print(utf8);
    text_ += utf8;
    if (o_.stream) io_.PrintJson({{"delta", utf8}});
  }
  const std::string& text() const { return text_; }

 private:
  Io& io_;
  const RunOptions& o_;
  std::string text_;
};

void Finish(Io& io, const RunOptions& o, const OpenedModel& opened, const Measured& m, const std::string& text) {
  if (io.json) {
    ordered_json j = {{"text", text}};
    if (o.ids) j["ids"] = m.stats.tokens;
    j.update(MeasuredJson(m, opened));
    io.PrintJson(j);
    return;
  }
  io.Print("\n");
  if (o.ids) {
    std::string line;
    for (const int32_t id : m.stats.tokens) line += std::to_string(id) + " ";
    if (!line.empty()) line.back() = '\n';
    io.Print(line);
  }
  if (o.quiet) return;
  io.err("\nwhere each operator ran\n" + PlacementText(*opened.backend) + MeasuredText(m, opened));
}

Result<int> Run(Io& io, const RunOptions& o) {
  if (o.stream && !io.json) return Error(Code::kInvalidArgument, "--stream is for --json", "without --json the text is streamed anyway");
  SLM_RETURN_IF_ERROR(CheckEngines(o));
  SLM_ASSIGN_OR_RETURN(const std::string text, PromptText(io, o));
  SLM_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(io, o.open));
  SLM_ASSIGN_OR_RETURN(decode::GenerateOptions options, FinishFlags(o.generate, opened));
  options.first_space = UsesTemplate(o, opened) ? text::FirstSpace::kStrip : text::FirstSpace::kKeep;
  SLM_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptIds(o, opened, text));
  decode::Session session(*opened.backend, *opened.tokenizer);
  const decode::CancelFlag cancel(*io.cancel);
  Printer printer(io, o);
  SLM_ASSIGN_OR_RETURN(const Measured m, GenerateMeasured(session, prompt, options, printer, cancel));
  Finish(io, o, opened, m, printer.text());
  return int{m.stats.finish_reason == decode::FinishReason::kCancelled ? kExitInterrupted : kExitOk};
}

}  // namespace

Body DeclareRun(CLI::App& app, Io& io) {
  auto o = std::make_shared<RunOptions>();
  AddOpenOptions(app, o->open);
  auto* text = app.add_option("-p,--prompt", o->prompt, "the prompt; without -p and -f it is read from stdin");
  app.add_option("-f,--file", o->file, "file with the prompt; - is stdin")->excludes(text);
  app.add_option("--system", o->system, "system message, before the prompt");
  auto* chat = app.add_flag("--chat", o->chat, "put the prompt into the model's chat template (default when it has one)");
  app.add_flag("--raw", o->raw, "continue the prompt as it is")->excludes(chat);
  app.add_flag("--parse-special", o->special, "with --raw: spellings of special tokens in the prompt become these tokens");
  app.add_flag("--ids", o->ids, "print the generated token ids too");
  app.add_flag("--stream", o->stream, "with --json: a line {\"delta\":…} for each piece before the final document");
  app.add_flag("-q,--quiet", o->quiet, "no report after the answer");
  AddGenerateFlags(app, o->generate);
  const auto nonempty = [](const std::string& value) { return value.empty() ? "needs a value" : ""; };
  const char* absent = "Not in this build (exit 1)";
  app.add_option("--json-schema", o->json_schema, "JSON schema file that the answer must follow")->check(nonempty)->group(absent);
  app.add_option("--grammar", o->grammar, "grammar file that the answer must follow")->check(nonempty)->group(absent);
  app.add_option("--draft", o->draft, "smaller model that guesses ahead")->check(nonempty)->group(absent);
  app.footer(
      "The answer goes to stdout, the report to stderr. Exit 130 after Ctrl-C, 3 when a limit said no.\n\n"
      "Example:\n  slm run smollm2-135m-instruct -p 'Why is the sky blue?' -n 64");
  return [o, &io]() -> Result<int> { return Run(io, *o); };
}

}  // namespace slm::cli
