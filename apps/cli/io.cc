// Printing, error lines, exit codes and suggestions: the small parts every verb shares.
#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "printable.h"
#include "verb.h"

namespace slm::cli {

void Io::Print(std::string_view text) {
  if (closed) return;
  const bool raw = out_terminal == Terminal::kNo || json;
  errno = EPIPE;
  if (raw ? out(text) : out(Printable(text, Show::kStream))) return;
  out_error = errno;
  closed = true;
  cancel->store(true);
}

void Io::PrintJson(const nlohmann::ordered_json& document) {
  Print(document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void Io::Note(std::string_view line) { err(Printable(line, Show::kLines) + "\n"); }

int ExitCodeOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument: return kExitUsage;
    case Code::kLimit: return kExitGate;
    case Code::kCancelled: return kExitInterrupted;
    case Code::kNotFound:
    case Code::kCorrupt:
    case Code::kUnsupported:
    case Code::kUnavailable:
    case Code::kIo:
    case Code::kInternal: return kExitFailed;
  }
  return kExitFailed;
}

std::string ErrorLine(const Error& error) {
  std::string line = "slm: " + error.message();
  if (!error.hint().empty()) line += ": " + error.hint();
  return Printable(line, Show::kLine);  // some of it may come from a file or a server
}

nlohmann::ordered_json ErrorJson(const Error& error) {
  return {{"error", {{"code", CodeName(error.code())}, {"message", error.message()}, {"hint", error.hint()}}}};
}

int Report(Io& io, const Error& error) {
  io.Note(ErrorLine(error));
  if (io.json) io.PrintJson(ErrorJson(error));
  return ExitCodeOf(error.code());
}

namespace {

// Smallest number of letters to change, add, leave out or swap with their neighbour, to make `a` from `b` or from some
// beginning of `b` (optimal string alignment).
struct Distances {
  size_t whole, beginning;
};
Distances EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return {last[b.size()], *std::min_element(last.begin(), last.end())};
}

}  // namespace

std::vector<std::string> Suggest(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 200;  // the distance is quadratic; nobody mistypes a name of 200 letters
  if (word.empty() || word.size() > kLongest) return {};
  std::vector<std::pair<size_t, std::string>> close;
  for (const std::string& name : known) {
    if (name.size() > kLongest) continue;
    const auto [whole, beginning] = EditDistance(word, name);
    const bool starts_so = word.size() >= 4 ? beginning <= word.size() / 5 : word.size() == 3 && beginning == 0;
    if (whole <= std::max<size_t>(1, word.size() / 3) || starts_so || (name.size() >= 3 && word.starts_with(name)))
      close.emplace_back(whole, name);
  }
  std::sort(close.begin(), close.end());
  std::vector<std::string> best;
  for (size_t i = 0; i < close.size() && i < 3; ++i) best.push_back(close[i].second);
  return best;
}

std::string DidYouMean(const std::vector<std::string>& suggestions) {
  if (suggestions.empty()) return {};
  std::string text = "did you mean ";
  for (size_t i = 0; i < suggestions.size(); ++i) text += (i ? ", " : "") + suggestions[i];
  return text + "?";
}

}  // namespace slm::cli
