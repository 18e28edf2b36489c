// Windows of the two protocols; see eval.h for what they are.
#include "eval/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace slm::eval {

const char* ProtocolName(Protocol p) { return p == Protocol::kGptq ? "gptq" : "llama.cpp"; }

namespace {
// In the gptq protocol the begin token takes no place of the text's.
bool HasTokenBefore(const WindowOptions& o) { return o.protocol == Protocol::kGptq && o.bos >= 0; }
}  // namespace

Result<int> CountWindows(size_t n_tokens, int max_context, const WindowOptions& o) {
  // The second half of a window is scored without its first token: of 2 tokens that is none, of 3 no half.
  const int least = o.protocol == Protocol::kLlama ? 4 : 2;
  if (o.window < least)
    return Error(Code::kInvalidArgument, fmt::format("windows of {} tokens in the {} protocol", o.window, ProtocolName(o.protocol)),
                 fmt::format("give at least {}", least));
  const bool before = HasTokenBefore(o);
  if (max_context < o.window + (before ? 1 : 0))
    return Error(Code::kInvalidArgument,
                 fmt::format("a context of {} for windows of {} tokens{}", max_context, o.window, before ? " and a begin token" : ""),
                 "open the model with a longer context or use shorter windows");
  const int windows = static_cast<int>(n_tokens / static_cast<size_t>(o.window));
  if (windows == 0)
    return Error(Code::kInvalidArgument, fmt::format("the text has {} tokens, one window takes {}", n_tokens, o.window),
                 "give a longer text or shorter windows");
  return o.max_windows > 0 ? std::min(windows, o.max_windows) : windows;
}

Window MakeWindow(std::span<const int32_t> text, int i, const WindowOptions& o) {
  const size_t width = static_cast<size_t>(o.window);
  const auto part = text.subspan(static_cast<size_t>(i) * width, width);
  const bool before = HasTokenBefore(o);
  Window w;
  w.tokens.assign(width + (before ? 1 : 0), o.bos);
  std::copy(part.begin(), part.end(), w.tokens.end() - static_cast<std::ptrdiff_t>(width));
  if (o.protocol == Protocol::kLlama && o.bos >= 0) w.tokens[0] = o.bos;
  w.first_scored = o.protocol == Protocol::kLlama ? width / 2 : w.tokens.size() - width;
  return w;
}

}  // namespace slm::eval
