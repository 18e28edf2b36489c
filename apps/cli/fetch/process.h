// Runs another program and waits for it: no shell, no inherited input, its words kept from our output.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

struct ProcessResult {
  int exit_code = 0;     // 128 + signal when a signal ended it
  std::string err_tail;  // the last 16 KiB of its stderr
};

// `argv[0]` is looked up in PATH, unless it has a '/'. The program starts in `folder` (empty: where we are), so a relative path
// in `argv` means one below that. Ctrl-C ends the program too.
// Errors: kNotFound when there is no such program or folder, kCancelled, kIo.
Result<ProcessResult> RunProgram(const std::vector<std::string>& argv, const std::string& folder, const CancelFlag* cancel);

// The same with stdout and stderr in a new file at `log`, for at most `limit_s` seconds; the exit code. What the program started and left
// running is not waited for; after Ctrl-C or the time it is ended too. Errors: as RunProgram, kLimit for the time.
Result<int> RunLogged(const std::vector<std::string>& argv, const std::string& log, int limit_s, const CancelFlag* cancel);

}  // namespace slm::cli
