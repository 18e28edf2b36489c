// How a text becomes windows: one place for both protocols, shared by everything that scores a text.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "eval/eval.h"

namespace slm::eval {

// The tokens that are fed for one window and the first index whose successor is scored.
struct Window {
  std::vector<int32_t> tokens;
  size_t first_scored = 0;

  // Is the row of logits after token `i` scored (against tokens[i + 1])?
  bool Scores(size_t i) const { return i + 1 < tokens.size() && i + 1 > first_scored; }
};

// Window `i` of the text, i < CountWindows.
Window MakeWindow(std::span<const int32_t> text, int i, const WindowOptions& options);

}  // namespace slm::eval
