// slm chat: a conversation in the terminal. The whole history goes through the chat template for every answer; the session finds
// out by itself how much of it the KV cache still holds.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "chat_input.h"
#include "generate_flags.h"
#include "open_model.h"
#include "output_file.h"
#include "prompt.h"
#include "read_input.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct ChatOptions {
  OpenOptions open;
  GenerateFlags generate;
  std::string system, load;
  bool stats = false, no_commands = false;
};

constexpr const char* kHelp =
    "/help               this list\n"
    "/clear              forget the conversation (the system message stays)\n"
    "/set                show the settings\n"
    "/set NAME VALUE     change one: temperature, top_k, top_p, min_p, repetition_penalty, penalty_window,\n"
    "                    presence_penalty, frequency_penalty, max_tokens, seed, system\n"
    "/save FILE          write the conversation as JSON\n"
    "/load FILE          go on with a saved conversation\n"
    "/stats              numbers of the last answer and where each operator ran\n"
    "/bye                leave (also /exit, /quit, Ctrl-D)\n"
    "A line that ends in \\ goes on; \"\"\" begins and ends a block of lines. Ctrl-C stops an answer.\n";

class Chat final : public decode::TokenSink {
 public:
  Chat(Io& io, const ChatOptions& o, const OpenedModel& opened, decode::GenerateOptions generate)
      : io_(io),
        opened_(opened),
        generate_(std::move(generate)),
        system_(o.system),
        show_stats_(o.stats),
        no_commands_(o.no_commands),
        session_(*opened.backend, *opened.tokenizer),
        cancel_(*io.cancel) {}

  // Reads messages and answers them until the input ends or the user leaves. Returns the exit code: with someone there who has
  // seen the errors 0, else that of the first answer that failed.
  Result<int> Talk(ChatInput& input, Terminal terminal);
  Status Load(const std::string& path);

 private:
  enum class Next : unsigned char { kGoOn, kLeave };
  void OnText(std::string_view utf8) override {
    answer_ += utf8;
    if (!io_.json) io_.Print(utf8);
  }
  Next Command(const std::string& line);
  void Answer(const std::string& message);
  void Report(const Measured& m);
  void Set(const std::string& name, const std::string& value);
  void ShowSettings();
  Status Save(const std::string& path) const;
  std::vector<Message> Messages() const;

  Io& io_;
  const OpenedModel& opened_;
  decode::GenerateOptions generate_;
  std::string system_;
  bool show_stats_, no_commands_;
  decode::Session session_;
  decode::CancelFlag cancel_;
  std::vector<Message> history_;  // user and assistant in turn; the system message is kept apart
  std::string answer_;
  std::optional<Measured> last_;
  int failed_ = kExitOk;  // exit code of the first answer that failed
};

std::vector<Message> Chat::Messages() const {
  std::vector<Message> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), history_.begin(), history_.end());
  return all;
}

void Chat::Report(const Measured& m) {
  if (io_.json) {
    ordered_json j = {{"text", answer_}};
    j.update(MeasuredJson(m, opened_));
    return io_.PrintJson(j);
  }
  io_.Print("\n");
  const auto& c = opened_.backend->capabilities();
  switch (m.stats.finish_reason) {
    case decode::FinishReason::kLength:
      io_.Note("[stopped after " + std::to_string(m.stats.generated_tokens) + " tokens; /set max_tokens N for longer answers]");
      break;
    case decode::FinishReason::kContext:
      io_.Note("[the context of " + std::to_string(c.max_context) + " tokens is full: /clear, or start again with a larger --ctx]");
      break;
    case decode::FinishReason::kCancelled: io_.Note("[stopped]"); break;
    case decode::FinishReason::kStop: break;
  }
  if (show_stats_) io_.err(MeasuredText(m, opened_));
}

// A message that cannot be answered is taken back, so that the conversation goes on as if it had not been said.
void Chat::Answer(const std::string& message) {
  answer_.clear();
  history_.push_back({"user", message});
  auto prompt = EncodeChat(opened_, Messages());
  auto measured = prompt.ok() ? GenerateMeasured(session_, prompt.value(), generate_, *this, cancel_) : Result<Measured>(prompt.error());
  io_.cancel->store(io_.closed);
  if (!measured.ok()) {
    history_.pop_back();
    if (!answer_.empty() && !io_.json) io_.Print("\n");
    const Error& e = measured.error();
    const bool full = e.code() == Code::kLimit;
    const Error told = full ? Error(e.code(), e.message(), "shorten the message, /clear, or start again with a larger --ctx") : e;
    const int code = slm::cli::Report(io_, told);
    if (failed_ == kExitOk) failed_ = code;
    return;
  }
  last_ = measured.Take();
  history_.push_back({"assistant", answer_});
  Report(*last_);
}

void Chat::ShowSettings() {
  const decode::SamplingOptions& s = generate_.sampling;
  std::ostringstream out;
  out << "temperature " << s.temperature << "\ntop_k " << s.top_k << "\ntop_p " << s.top_p << "\nmin_p " << s.min_p
      << "\nrepetition_penalty " << s.repetition_penalty << "\npenalty_window " << s.penalty_window << "\npresence_penalty "
      << s.presence_penalty << "\nfrequency_penalty " << s.frequency_penalty << "\nmax_tokens " << generate_.max_tokens << "\nseed "
      << s.seed << "\nsystem " << (system_.empty() ? "(none)" : system_) << "\n";
  io_.err(out.str());
}

void Chat::Set(const std::string& name, const std::string& value) {
  if (name == "system") {
    system_ = value;
    return;
  }
  decode::SamplingOptions& s = generate_.sampling;
  std::istringstream in(value);
  const decode::GenerateOptions before = generate_;
  Status usable;
  const auto read = [&](auto& target) {
    auto copy = target;
    if (in >> copy && (in >> std::ws).eof()) target = copy;
    else usable = Error(Code::kInvalidArgument, "'" + value + "' is not a number for " + name, "/set shows the settings");
  };
  if (name == "temperature") read(s.temperature);
  else if (name == "top_k") read(s.top_k);
  else if (name == "top_p") read(s.top_p);
  else if (name == "min_p") read(s.min_p);
  else if (name == "repetition_penalty") read(s.repetition_penalty);
  else if (name == "penalty_window") read(s.penalty_window);
  else if (name == "presence_penalty") read(s.presence_penalty);
  else if (name == "frequency_penalty") read(s.frequency_penalty);
  else if (name == "max_tokens") read(generate_.max_tokens);
  else if (name == "seed") read(s.seed);
  else usable = Error(Code::kInvalidArgument, "no setting '" + name + "'", "/help lists them");
  if (usable.ok()) usable = decode::CheckSampling(s, opened_.backend->capabilities().vocab_size);
  if (generate_.max_tokens < 0) usable = Error(Code::kInvalidArgument, "max_tokens is less than 0", "give 0 or more");
  if (usable.ok()) return;
  slm::cli::Report(io_, usable.error());
  generate_ = before;
}

Status Chat::Save(const std::string& path) const {
  ordered_json list = ordered_json::array();
  for (const Message& m : Messages()) list.push_back({{"role", m.role}, {"content", m.content}});
  const std::string text = list.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  SLM_RETURN_IF_ERROR(RefuseModelFile(path, opened_.model->path, Neighbours::kSameExtension));
  SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io_));
  SLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

Status Chat::Load(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(io_, path));
  const Error bad(Code::kCorrupt, path + ": not a list of messages", "expected [{\"role\":\"user\",\"content\":\"…\"}, …]");
  const ordered_json list = ordered_json::parse(text, nullptr, false);
  if (!list.is_array()) return bad;
  std::string system;
  std::vector<Message> history;
  for (const auto& m : list) {
    if (!m.is_object() || !m.contains("role") || !m.contains("content") || !m["role"].is_string() || !m["content"].is_string()) return bad;
    Message message{m["role"], m["content"]};
    if (message.role == "system") system = message.content;
    else if (message.role == "user" || message.role == "assistant") history.push_back(std::move(message));
    else return bad;
  }
  system_ = std::move(system);
  history_ = std::move(history);
  return Ok();
}

Chat::Next Chat::Command(const std::string& line) {
  std::istringstream in(line);
  std::string command, name, rest;
  in >> command >> std::ws;
  std::getline(in, rest);
  const auto tell = [&](const Status& s, const std::string& done) {
    if (s.ok()) io_.Note(done);
    else slm::cli::Report(io_, s.error());
  };
  if (command == "/bye" || command == "/exit" || command == "/quit") return Next::kLeave;
  if (command == "/help") io_.err(kHelp);
  else if (command == "/clear") history_.clear();
  else if (command == "/set" && rest.empty()) ShowSettings();
  else if (command == "/set") {
    const size_t space = rest.find(' ');
    Set(rest.substr(0, space), space == std::string::npos ? "" : rest.substr(space + 1));
  } else if ((command == "/save" || command == "/load") && rest.empty())
    tell(Error(Code::kInvalidArgument, command + " needs the path of a file", command + " FILE"), "");
  else if (command == "/save") tell(Save(rest), "saved to " + rest);
  else if (command == "/load") tell(Load(rest), "loaded " + rest);
  else if (command == "/stats" && !last_) io_.Note("no answer yet");
  else if (command == "/stats") io_.err(PlacementText(*opened_.backend) + MeasuredText(*last_, opened_));
  else tell(Error(Code::kInvalidArgument, "no command '" + command + "'", "/help lists them"), "");
  return Next::kGoOn;
}

Result<int> Chat::Talk(ChatInput& input, Terminal terminal) {
  std::string message;
  bool interrupted = false;
  while (!io_.closed) {
    const auto event = input.Next(message);
    if (event == ChatInput::Event::kEnd) break;
    if (event == ChatInput::Event::kInterrupted) {
      if (interrupted) return int{kExitInterrupted};
      interrupted = true;
      io_.Note("\n[Ctrl-C again, /bye or Ctrl-D to leave]");
      continue;
    }
    interrupted = false;
    if (message.find_first_not_of(" \t\n") == std::string::npos) continue;
    if (no_commands_ || message[0] != '/' || message.find('\n') != std::string::npos) Answer(message);
    else if (Command(message) == Next::kLeave) break;
  }
  return terminal == Terminal::kYes ? int{kExitOk} : failed_;
}

Result<int> Run(Io& io, const ChatOptions& o) {
  SLM_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(io, o.open));
  if (!HasTemplate(opened))
    return Error(Code::kUnsupported, "this model has no chat template", "use slm run --raw, or a model made for conversation");
  SLM_ASSIGN_OR_RETURN(const decode::GenerateOptions generate, FinishFlags(o.generate, opened));
  Chat chat(io, o, opened, generate);
  if (!o.load.empty()) SLM_RETURN_IF_ERROR(chat.Load(o.load));
  const bool terminal = isatty(STDIN_FILENO) && !io.json;
  if (terminal) io.Note("/help lists the commands, /bye leaves.");
  ChatInput input(STDIN_FILENO, *io.cancel, [&io, terminal](bool first) {
    if (terminal) io.err(first ? "\n> " : ". ");
  });
  return chat.Talk(input, terminal ? Terminal::kYes : Terminal::kNo);
}

}  // namespace

Body DeclareChat(CLI::App& app, Io& io) {
  auto o = std::make_shared<ChatOptions>();
  o->generate.options.max_tokens = 1024;
  AddOpenOptions(app, o->open);
  app.add_option("--system", o->system, "system message");
  app.add_option("--load", o->load, "conversation to go on with, written by /save");
  app.add_flag("--no-commands", o->no_commands, "lines that begin with / are messages, too: for programs that pipe a user's text in");
  app.add_flag("--stats", o->stats, "numbers after every answer");
  AddGenerateFlags(app, o->generate);
  app.footer(
      "Messages are read from stdin, so a script can pipe them in, one a line. With --json every answer is one line of JSON.\n"
      "Then the exit code is that of the first message that could not be answered.\n\n"
      "Example:\n  slm chat smollm2-135m-instruct --temperature 0.7 --top-p 0.9");
  return [o, &io]() -> Result<int> { return Run(io, *o); };
}

}  // namespace slm::cli
