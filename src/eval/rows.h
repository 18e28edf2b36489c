// Tokens through a back end, a chunk at a time, and their rows of logits one by one: what perplexity and tasks share.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/result.h"

namespace slm::eval {

// Evaluates tokens [from, end) after the back end was rewound to `from`; f(row, i) gets the logits [V] after token i, for i >= first. A
// chunk without such tokens computes the head for its last row only. Errors: the back end's.
template <class F>
Status EachRow(backend::Backend& b, std::span<const int32_t> tokens, size_t from, size_t first, F f) {
  const size_t chunk = static_cast<size_t>(b.capabilities().max_tokens);
  for (size_t at = from; at < tokens.size();) {
    const size_t n = std::min(chunk, tokens.size() - at);
    const auto which = at + n > first ? backend::LogitsOf::kAllTokens : backend::LogitsOf::kLastToken;
    SLM_ASSIGN_OR_RETURN(const backend::Logits l, b.Forward(tokens.subspan(at, n), which));
    for (size_t i = std::max(at, first); i < at + n; ++i) f(l.Row(static_cast<int>(i - at)), i);
    at += n;
  }
  return Ok();
}

}  // namespace slm::eval
