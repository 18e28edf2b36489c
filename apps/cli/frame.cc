// Parses a command line, runs the verb and reports: the only file besides main.cc that knows the whole of `slm`.
//
// CLI11 reports by exceptions; they are caught here and become the same one-line error as any other failure.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "verb.h"
#include "version.h"

namespace slm::cli {
namespace {

std::string TopHelp() {
  std::string text = "slm " SLM_VERSION
                     " - compile and run small language models on this device\n\n"
                     "Usage: slm VERB [OPTIONS]\n\nVerbs:\n";
  for (const Verb& verb : Verbs()) {
    std::string name = verb.name;
    name.resize(std::max<size_t>(name.size() + 2, 12), ' ');
    text += "  " + name + verb.summary + "\n";
  }
  text +=
      "\nslm VERB -h shows a verb's options and an example. Every verb takes --json.\n"
      "MODEL is a path or the name of a model in the store (slm models).\n";
  return text;
}

const Verb* FindVerb(const std::string& name) {
  for (const Verb& verb : Verbs())
    if (name == verb.name) return &verb;
  return nullptr;
}

Error UnknownVerb(const std::string& name) {
  std::vector<std::string> known;
  for (const Verb& verb : Verbs()) known.push_back(verb.name);
  const std::string hint = DidYouMean(Suggest(name, known));
  return Error(Code::kInvalidArgument, "unknown verb '" + name + "'", hint.empty() ? "slm --help lists the verbs" : hint);
}

bool TakesNumbers(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

// CLI11 reads an empty word as the number 0 and skips empty parts of a list: `--pp 8,,` or `--temperature "$UNSET"` must not run.
Status CheckNumbers(const CLI::App& app, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (!words[i].starts_with("-")) continue;
    const size_t equals = words[i].starts_with("--") ? words[i].find('=') : std::string::npos;
    const std::string name = words[i].substr(0, equals);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (!option || option->get_items_expected_max() == 0) continue;
    if (equals == std::string::npos && ++i == words.size()) break;
    if (!TakesNumbers(*option)) continue;
    const std::string value = equals == std::string::npos ? words[i] : words[i].substr(equals + 1);
    const std::string marked = "," + value + ",";
    if (value.empty() || (option->get_delimiter() == ',' && marked.find(",,") != std::string::npos))
      return Error(Code::kInvalidArgument, name + ": '" + value + "' has a number missing",
                   std::string("give a number, or leave out ") + name);
  }
  return Ok();
}

// The words after "slm", and whether --json stood before the verb.
struct Line {
  std::vector<std::string> words;
  bool json_first = false;
};

Result<int> ParseAndRun(const Verb& verb, Line line, Io& io) {
  CLI::App app(verb.summary, std::string("slm ") + verb.name);
  bool json = false;
  app.add_flag("--json", json, "JSON on stdout and nothing else: one document, or one a line where the verb says so");
  const Body body = verb.declare(app, io);
  SLM_RETURN_IF_ERROR(CheckNumbers(app, line.words));
  std::vector<std::string>& arguments = line.words;
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes its vector last word first
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    io.Print(app.help());
    return int{kExitOk};
  } catch (const CLI::ParseError& e) {
    return Error(Code::kInvalidArgument, e.what(), std::string("slm ") + verb.name + " -h shows the options");
  }
  io.json = json || line.json_first;  // the word may have been another option's value
  return body();
}

Result<int> RunVerb(const Verb& verb, const Line& line, Io& io) {
  try {
    auto result = ParseAndRun(verb, line, io);
    if (!result.ok()) return result.error().At(verb.name);
    return result;
  } catch (const std::bad_alloc&) {
    return Error(Code::kLimit, std::string(verb.name) + ": out of memory", "use a smaller model or context");
  } catch (const std::exception& e) {
    return Error(Code::kInternal, std::string(verb.name) + ": unexpected " + e.what(), "please report this with the command line");
  }
}

Result<int> Run(const Line& line, Io& io) {
  const std::vector<std::string>& arguments = line.words;
  if (arguments.empty()) {
    if (io.json) return Error(Code::kInvalidArgument, "no verb", "slm -h lists them");
    io.err(TopHelp());
    return int{kExitUsage};
  }
  const std::string& first = arguments[0];
  if (first == "--version" || first == "-V") {
    if (io.json) io.PrintJson({{"version", SLM_VERSION}});
    else io.Print("slm " SLM_VERSION "\n");
    return int{kExitOk};
  }
  const bool help_verb = first == "help";
  if (first == "-h" || first == "--help" || (help_verb && arguments.size() == 1)) {
    io.Print(TopHelp());
    return int{kExitOk};
  }
  const std::string& name = help_verb ? arguments[1] : first;
  if (name.starts_with("-")) return Error(Code::kInvalidArgument, "option '" + name + "' before the verb", "write slm VERB " + name);
  const Verb* verb = FindVerb(name);
  if (!verb) return UnknownVerb(name);
  if (help_verb) return RunVerb(*verb, {{"--help"}}, io);
  return RunVerb(*verb, {{arguments.begin() + 1, arguments.end()}, line.json_first}, io);
}

}  // namespace

int RunCommandLine(const std::vector<std::string>& arguments, Io& io) {
  // Errors found while parsing must already honour --json, so it is looked for before CLI11 sees the words.
  io.json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  const bool leading = !arguments.empty() && arguments[0] == "--json";
  const auto result = Run({{arguments.begin() + (leading ? 1 : 0), arguments.end()}, leading}, io);
  if (io.closed && io.out_error == EPIPE) return kExitClosedPipe;
  if (io.closed) {
    io.Note(ErrorLine(
        Error(Code::kIo, std::string("stdout: ") + std::strerror(io.out_error), "the output is incomplete; check where it goes")));
    return kExitFailed;
  }
  return result.ok() ? result.value() : Report(io, result.error());
}

}  // namespace slm::cli
