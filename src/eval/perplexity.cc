// Perplexity by windows; see eval.h for the two protocols.
#include "eval/eval.h"
#include "eval/log_sum_exp.h"
#include "eval/moments.h"
#include "eval/rows.h"
#include "eval/windows.h"

namespace slm::eval {
namespace {

Status ScoreWindow(backend::Backend& b, const Window& w, Moments& nll) {
  SLM_RETURN_IF_ERROR(b.Rewind(0));
  return EachRow(b, w.tokens, 0, w.first_scored, [&](std::span<const float> row, size_t i) {
    if (w.Scores(i)) nll.Add(NegativeLogProbability(row, w.tokens[i + 1]));
  });
}

}  // namespace

double NegativeLogProbability(std::span<const float> logits, int32_t target) {
  return LogSumExp(logits) - logits[static_cast<size_t>(target)];
}

Result<Perplexity> MeasurePerplexity(backend::Backend& backend, std::span<const int32_t> tokens, const WindowOptions& o,
                                     const PerplexityProgress& progress) {
  SLM_ASSIGN_OR_RETURN(const int windows, CountWindows(tokens.size(), backend.capabilities().max_context, o));
  Moments nll;
  for (int i = 0; i < windows; ++i) {
    SLM_RETURN_IF_ERROR(ScoreWindow(backend, MakeWindow(tokens, i, o), nll));
    if (progress && !progress(i + 1, windows, PerplexityOf(nll, i + 1))) return Error(Code::kCancelled, "interrupted");
  }
  if (nll.n == 0) return Error(Code::kInvalidArgument, "no token was scored", "use longer windows");
  return PerplexityOf(nll, windows);
}

}  // namespace slm::eval
