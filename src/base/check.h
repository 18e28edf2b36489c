// SLM_ASSERT: a broken promise between our own functions stops the process; bad input never reaches one.
#pragma once

namespace slm {
// Writes file, line and expression to stderr and aborts. Kept out of line so that the check costs one branch.
[[noreturn]] void AssertFailed(const char* file, int line, const char* expression);
}  // namespace slm

#define SLM_ASSERT(cond)                              \
  do {                                                \
    if (!(cond)) [[unlikely]]                         \
      ::slm::AssertFailed(__FILE__, __LINE__, #cond); \
  } while (0)
