// The frame in one process: output, errors, exit codes, suggestions, progress.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "progress.h"
#include "verb.h"

namespace slm::cli {
namespace {

struct Captured {
  std::string out, err;
  CancelFlag cancel{false};
  Io io;
  Captured() {
    io.out = [this](std::string_view text) { return out += text, true; };
    io.err = [this](std::string_view text) { return err += text, true; };
    io.cancel = &cancel;
    io.store = "/does/not/exist";
  }
};

TEST(Frame, ErrorsAreOneLineAndWithJsonOneDocument) {
  Captured c;
  EXPECT_EQ(RunCommandLine({"rm", "nope", "--json"}, c.io), kExitFailed);
  EXPECT_EQ(c.err, "slm: rm: nope: no such model in the store: slm models lists what is there\n");
  const auto json = nlohmann::json::parse(c.out);
  EXPECT_EQ(json["error"]["code"], "not_found");
  EXPECT_EQ(json["error"].size(), 3u);
  EXPECT_EQ(c.out.find('\n'), c.out.size() - 1);
}

TEST(Frame, LineBreaksStayOutOfErrorLines) {
  EXPECT_EQ(ErrorLine(Error(Code::kIo, "a\nb\r", "c")), "slm: a b : c");
  EXPECT_EQ(ErrorLine(Error(Code::kIo, "\x1b[2Ja\x7f")), "slm:  [2Ja ");
  EXPECT_EQ(ErrorLine(Error(Code::kIo, "a")), "slm: a");
}

TEST(Frame, BytesThatAreNotUtf8DoNotBreakJson) {
  Captured c;
  EXPECT_EQ(RunCommandLine({"rm", "\xff\xfe", "--json"}, c.io), kExitUsage);
  EXPECT_TRUE(nlohmann::json::accept(c.out)) << c.out;
}

TEST(Frame, ExitCodes) {
  EXPECT_EQ(ExitCodeOf(Code::kInvalidArgument), 2);
  EXPECT_EQ(ExitCodeOf(Code::kLimit), 3);
  EXPECT_EQ(ExitCodeOf(Code::kCancelled), 130);
  for (const Code code : {Code::kNotFound, Code::kCorrupt, Code::kUnsupported, Code::kUnavailable, Code::kIo, Code::kInternal})
    EXPECT_EQ(ExitCodeOf(code), 1);
}

TEST(Frame, JsonWithoutAVerbIsOneDocument) {
  Captured c;
  EXPECT_EQ(RunCommandLine({"--json"}, c.io), kExitUsage);
  EXPECT_EQ(nlohmann::json::parse(c.out)["error"]["code"], "invalid_argument");
}

TEST(Frame, JsonMayStandBeforeTheVerb) {
  Captured c;
  EXPECT_EQ(RunCommandLine({"--json", "models"}, c.io), 0);
  EXPECT_EQ(c.out, "[]\n");
}

TEST(Frame, HelpGoesToStdoutAndSucceeds) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"-h"}, {"help"}, {"help", "rm"}, {"rm", "--help"}}) {
    Captured c;
    EXPECT_EQ(RunCommandLine(words, c.io), 0);
    EXPECT_NE(c.out.find("slm"), std::string::npos);
    EXPECT_EQ(c.err, "");
  }
}

TEST(Frame, EveryVerbHasASummaryAndParsesItsHelp) {
  EXPECT_FALSE(Verbs().empty());
  for (const Verb& verb : Verbs()) {
    Captured c;
    EXPECT_EQ(RunCommandLine({verb.name, "-h"}, c.io), 0) << verb.name;
    EXPECT_NE(c.out.find(verb.summary), std::string::npos) << verb.name;
  }
}

TEST(Frame, AClosedPipeCancels) {
  Captured c;
  c.io.out = [](std::string_view) { return false; };
  EXPECT_EQ(RunCommandLine({"models", "--json"}, c.io), kExitClosedPipe);
  EXPECT_TRUE(c.cancel.load());
  EXPECT_EQ(c.err, "");
}

TEST(Frame, AnotherFailureOfStdoutIsAnError) {
  for (const int why : {ENOSPC, EIO, EBADF}) {
    Captured c;
    c.io.out = [why](std::string_view) { return errno = why, false; };
    EXPECT_EQ(RunCommandLine({"models", "--json"}, c.io), kExitFailed);
    EXPECT_TRUE(c.err.starts_with(std::string("slm: stdout: ") + std::strerror(why) + ": ")) << c.err;
  }
}

TEST(Frame, JsonAsAnOptionsValueIsNoSwitch) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "/no/model", "-p", "--json"}, {"run", "/no/model", "--prompt=--json"}}) {
    Captured c;
    EXPECT_EQ(RunCommandLine(words, c.io), kExitFailed);
    EXPECT_EQ(c.out, "");
  }
  Captured c;
  EXPECT_EQ(RunCommandLine({"--json", "run", "/no/model", "-p", "--json"}, c.io), kExitFailed);
  EXPECT_TRUE(nlohmann::json::accept(c.out)) << c.out;
}

TEST(Frame, NumbersMustBeThere) {
  const std::vector<std::vector<std::string>> lines = {{"run", "/no/model", "-p", "a", "--temperature", ""},
                                                       {"run", "/no/model", "-p", "a", "--temperature="},
                                                       {"run", "/no/model", "-p", "a", "-n", ""},
                                                       {"run", "/no/model", "-p", "a", "--mem", ""},
                                                       {"run", "/no/model", "-p", "a", "--mem", "lots"},
                                                       {"bench", "/no/model", "--pp", "8,,"},
                                                       {"bench", "/no/model", "--tg=,8"}};
  for (const auto& words : lines) {
    Captured c;
    EXPECT_EQ(RunCommandLine(words, c.io), kExitUsage) << words.back();
  }
  Captured c;  // the same words as values of a text option
  EXPECT_EQ(RunCommandLine({"run", "/no/model", "-p", "--temperature", "--system", ""}, c.io), kExitFailed) << c.err;
}

TEST(Frame, RangesAreReadable) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"eval", "/no/model", "ppl", "--text", "a", "--windows", "-1"},
                                                {"inspect", "/no/model", "--ctx", "-1"},
                                                {"bench", "/no/model", "--ctx", "99999999999"}}) {
    Captured c;
    EXPECT_EQ(RunCommandLine(words, c.io), kExitUsage);
    EXPECT_NE(c.err.find("0 to 2147483647"), std::string::npos) << c.err;
  }
}

TEST(Frame, AnAnswerOnATerminalHasNoControlCodes) {
  Captured c;
  c.io.Print("a\x1b[2J\n");
  c.io.out_terminal = Terminal::kYes;
  c.io.Print("b\x1b[2J\n");
  c.io.Note("c\x1b[2J");
  EXPECT_EQ(c.out, "a\x1b[2J\nb[2J\n");
  EXPECT_EQ(c.err, "c [2J\n");
}

TEST(Suggest, TyposBeginningsAndNothing) {
  const std::vector<std::string> known = {"fetch", "models", "inspect", "smollm2-135m-instruct", "rm", "run"};
  EXPECT_EQ(Suggest("fecth", known), std::vector<std::string>{"fetch"});
  EXPECT_EQ(Suggest("modles", known), std::vector<std::string>{"models"});
  EXPECT_EQ(Suggest("smolm2", known), std::vector<std::string>{"smollm2-135m-instruct"});
  EXPECT_EQ(Suggest("ins", known), std::vector<std::string>{"inspect"});
  EXPECT_TRUE(Suggest("zzzzzz", known).empty());
  EXPECT_TRUE(Suggest("", known).empty());
  EXPECT_TRUE(Suggest(std::string(100000, 'x'), known).empty());
  EXPECT_EQ(DidYouMean({"a", "b"}), "did you mean a, b?");
  EXPECT_EQ(DidYouMean({}), "");
}

TEST(Progress, OneLinePerTenPercentOffATerminal) {
  Captured c;
  Progress progress(c.io, "file", 1000, Progress::Unit::kSteps);
  for (uint64_t i = 1; i <= 1000; ++i) progress.Update(i);
  progress.Finish();
  progress.Finish();
  std::vector<std::string> lines;
  for (size_t at = 0; at < c.err.size(); at = c.err.find('\n', at) + 1) lines.push_back(c.err.substr(at, c.err.find('\n', at) - at));
  ASSERT_EQ(lines.size(), 10u) << c.err;
  EXPECT_EQ(lines[0], "file: 10 %");
  EXPECT_EQ(lines[8], "file: 90 %");
  EXPECT_TRUE(lines[9].starts_with("file: done, 1000 steps"));
  EXPECT_EQ(c.out, "");
}

TEST(Progress, ATerminalGetsOneLineThatEnds) {
  Captured c;
  c.io.err_terminal = Terminal::kYes;
  {
    Progress progress(c.io, "file", 1000);
    progress.Update(500);
  }
  EXPECT_EQ(std::count(c.err.begin(), c.err.end(), '\n'), 1);
  EXPECT_NE(c.err.find(" 50 %"), std::string::npos);
}

TEST(Progress, Bytes) {
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1500), "1.5 kB");
  EXPECT_EQ(FormatBytes(98362432), "98.4 MB");
  EXPECT_EQ(FormatBytes(1117320768), "1.12 GB");
}

}  // namespace
}  // namespace slm::cli
