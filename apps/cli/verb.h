// The frame of the command line: what a verb is, where it writes, how it fails.
//
// A verb lives in its own file and is one function, Declare<Verb>, listed once in verbs.inc. The frame parses with CLI11, prints
// errors in one shape, maps error codes to exit codes and turns Ctrl-C into a flag. Nothing below apps/ prints.
#pragma once
#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace slm::cli {

// Set by Ctrl-C (and by a closed stdout). Verbs hand it to whatever runs long; chat clears it after each answer.
using CancelFlag = std::atomic<bool>;

// Takes bytes; false when they could not be written, with the reason in errno (EPIPE: the reader is gone).
using Sink = std::function<bool(std::string_view)>;

enum class Terminal : unsigned char { kNo, kYes };

// Where a verb reads and writes. Used from the main thread only; `cancel` may be read by any thread.
struct Io {
  Sink out;                               // results
  Sink err;                               // progress, notes, errors
  Terminal out_terminal = Terminal::kNo;  // is stdout a terminal: control codes of a model's answer stay away from it
  Terminal err_terminal = Terminal::kNo;  // is stderr a terminal: bars there, plain lines elsewhere
  bool json = false;                      // --json: stdout carries JSON and nothing else
  std::string store;                      // root folder of the model store (see store.h)
  CancelFlag* cancel = nullptr;           // never null inside a verb
  bool closed = false;                    // a write to stdout failed: the run ends
  int out_error = 0;                      // why, as errno has it; EPIPE: the reader went away, which ends the run quietly

  // Writes a result. When that fails, remembers it and sets `cancel`.
  void Print(std::string_view text);
  // Writes one JSON document and a line end. Bytes that are not UTF-8 are replaced.
  void PrintJson(const nlohmann::ordered_json& document);
  // Writes lines on stderr, without control codes.
  void Note(std::string_view line);
  bool cancelled() const { return cancel->load(std::memory_order_relaxed); }
};

// What a verb does once its options are parsed. The value is the exit code (0 unless the verb documents another one).
using Body = std::function<Result<int>()>;

// Adds the verb's options, their help and an example (app.footer) to `app` and returns what to do after parsing.
// The options must outlive the call: keep them in a std::shared_ptr that the returned function holds. -h and --json are the
// frame's. `io` outlives the body.
using Declare = Body (*)(CLI::App& app, Io& io);

struct Verb {
  const char* name;
  const char* summary;
  Declare declare;
};

// The rows of verbs.inc.
const std::vector<Verb>& Verbs();

enum ExitCode : int { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitGate = 3, kExitInterrupted = 130, kExitClosedPipe = 141 };

// Exit code of an error: kInvalidArgument is usage, kLimit a budget or gate, kCancelled an interrupt, the rest failed work.
int ExitCodeOf(Code code);

// One line: "slm: <place>: <what>: <what to do>"; line breaks and control codes become spaces.
std::string ErrorLine(const Error& error);

// {"error":{"code","message","hint"}}
nlohmann::ordered_json ErrorJson(const Error& error);

// Prints `error` on stderr, with --json also as a document on stdout; returns its exit code.
int Report(Io& io, const Error& error);

// The whole command line after the program's name. Returns the exit code; no exception leaves it.
int RunCommandLine(const std::vector<std::string>& arguments, Io& io);

// The words of `known` that are close to `word`: by edit distance (at most a third of its length), or because they begin with
// something very like it. Best first, at most 3.
std::vector<std::string> Suggest(const std::string& word, const std::vector<std::string>& known);

// "did you mean a, b?" or an empty string.
std::string DidYouMean(const std::vector<std::string>& suggestions);

}  // namespace slm::cli
