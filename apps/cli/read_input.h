// Text that a verb is given: a file, or standard input. One limit and one way to fail for all verbs.
#pragma once
#include <cstddef>
#include <string>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

// No prompt, conversation or test text is larger; a device file would never end.
inline constexpr size_t kInputLimit = size_t{64} << 20;

// All bytes of the file `path`. Ctrl-C ends the wait for a pipe.
// Errors, naming the path: kNotFound, kLimit above kInputLimit, kCancelled, kIo.
Result<std::string> ReadInputFile(const Io& io, const std::string& path);

// The same, where "-" is standard input.
Result<std::string> ReadInput(const Io& io, const std::string& path);

}  // namespace slm::cli
