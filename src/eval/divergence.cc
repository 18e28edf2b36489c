// Divergence of a model from its base, both run side by side; see eval.h. The figures are those of llama-perplexity's
// --kl-divergence, from logits in f32 instead of a file of 16-bit log-probabilities.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "base/threads.h"
#include "eval/eval.h"
#include "eval/moments.h"
#include "eval/windows.h"

namespace slm::eval {
namespace {

// What one scored token says.
struct TokenScore {
  double kld = 0, nll = 0, base_nll = 0;
  bool same_top = false;
  double change = 0, square = 0;  // sums over the row: (p - b)^2, b^2
};

size_t IndexOfMax(std::span<const float> x) { return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin()); }

// One row of both models [V] against the token that follows. With e = exp(b - max b):
// KL = sum(e * ((b - max b) - (p - max p))) / sum(e) + ln sum exp(p - max p) - ln sum(e).
TokenScore Compare(std::span<const float> p, std::span<const float> b, int32_t target) {
  const size_t p_top = IndexOfMax(p), b_top = IndexOfMax(b), right = static_cast<size_t>(target);
  const double p_max = p[p_top], b_max = b[b_top];
  double p_sum = 0, b_sum = 0, cross = 0, change = 0, square = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double x = p[i] - p_max, y = b[i] - b_max, e = std::exp(y);
    p_sum += std::exp(x);
    b_sum += e;
    if (e > 0) cross += e * (y - x);  // 0 ln 0 = 0
    const double value = b[i], moved = p[i] - value;
    change += moved * moved;
    square += value * value;
  }
  const double p_log = std::log(p_sum), b_log = std::log(b_sum);
  // A divergence is not negative; rounding may say so by 1e-16.
  return {
      std::max(0.0, cross / b_sum + p_log - b_log), p_log - (p[right] - p_max), b_log - (b[right] - b_max), p_top == b_top, change, square};
}

struct Tally {
  Moments kld, nll, base_nll, top1, delta_p, delta_p_square, dlnppl;
  double co_moment = 0;  // of the two nll
  double change = 0, square = 0;
  std::vector<double> klds;

  void Add(const TokenScore& s) {
    const double delta = std::exp(-s.nll) - std::exp(-s.base_nll);
    kld.Add(s.kld);
    klds.push_back(s.kld);
    change += s.change;
    square += s.square;
    top1.Add(s.same_top ? 1 : 0);
    delta_p.Add(delta);
    delta_p_square.Add(delta * delta);
    dlnppl.Add(s.nll - s.base_nll);
    const double before = nll.Add(s.nll);
    base_nll.Add(s.base_nll);
    co_moment += before * (s.base_nll - base_nll.mean);
  }
  Divergence Result(int windows);
};

// `sorted` ascending, not empty.
double Percentile(std::span<const double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t i = static_cast<size_t>(at), next = std::min(i + 1, sorted.size() - 1);
  return sorted[i] + (at - static_cast<double>(i)) * (sorted[next] - sorted[i]);
}

Divergence Tally::Result(int windows) {
  Divergence d;
  d.scored_tokens = kld.n;
  d.windows = windows;
  d.model = PerplexityOf(nll, windows);
  d.base = PerplexityOf(base_nll, windows);
  d.kld = kld.Of();
  std::sort(klds.begin(), klds.end());
  d.p50 = Percentile(klds, 0.5);
  d.p90 = Percentile(klds, 0.9);
  d.p95 = Percentile(klds, 0.95);
  d.p99 = Percentile(klds, 0.99);
  d.p999 = Percentile(klds, 0.999);
  d.max = klds.back();
  d.top1 = top1.Of();
  d.delta_p = delta_p.Of();
  const double rms = std::sqrt(delta_p_square.mean);
  d.rms_delta_p = {rms, rms > 0 ? delta_p_square.Sigma() / (2 * rms) : 0};
  d.rms_logits = square > 0 ? std::sqrt(change / square) : 0;
  d.dlnppl = dlnppl.Of();
  const double spread = std::sqrt(nll.m2) * std::sqrt(base_nll.m2);
  d.correlation = spread > 0 ? std::clamp(co_moment / spread, -1.0, 1.0) : std::numeric_limits<double>::quiet_NaN();  // rounding
  return d;
}

// The two models and the threads that compare their rows.
struct Pair {
  backend::Backend& model;
  backend::Backend& base;
  ThreadTeam& team;
  std::vector<TokenScore> scores;  // of one chunk
};

void CompareRows(Pair& pair, const backend::Logits& p, const backend::Logits& b, const Window& w, size_t at) {
  pair.scores.assign(static_cast<size_t>(p.n_rows), {});
  std::atomic<int> next{0};  // rows cost the same, but a neighbour may take a core away
  auto work = [&](int, int) {
    for (int i = next.fetch_add(1, std::memory_order_relaxed); i < p.n_rows; i = next.fetch_add(1, std::memory_order_relaxed)) {
      const size_t token = at + static_cast<size_t>(i);
      if (w.Scores(token)) pair.scores[static_cast<size_t>(i)] = Compare(p.Row(i), b.Row(i), w.tokens[token + 1]);
    }
  };
  pair.team.Run(work);
}

Status ScoreWindow(Pair& pair, const Window& w, Tally& tally) {
  SLM_RETURN_IF_ERROR(pair.model.Rewind(0));
  SLM_RETURN_IF_ERROR(pair.base.Rewind(0));
  const size_t chunk = static_cast<size_t>(std::min(pair.model.capabilities().max_tokens, pair.base.capabilities().max_tokens));
  for (size_t at = 0; at < w.tokens.size();) {
    const size_t n = std::min(chunk, w.tokens.size() - at);
    const std::span<const int32_t> tokens{w.tokens.data() + at, n};
    const bool scored = at + n > w.first_scored;
    const auto which = scored ? backend::LogitsOf::kAllTokens : backend::LogitsOf::kLastToken;
    SLM_ASSIGN_OR_RETURN(const backend::Logits p, pair.model.Forward(tokens, which));
    SLM_ASSIGN_OR_RETURN(const backend::Logits b, pair.base.Forward(tokens, which));
    if (scored) CompareRows(pair, p, b, w, at);
    for (size_t i = 0; i < n; ++i)
      if (w.Scores(at + i)) tally.Add(pair.scores[i]);
    at += n;
  }
  return Ok();
}

}  // namespace

Result<Divergence> MeasureDivergence(backend::Backend& model, backend::Backend& base, std::span<const int32_t> tokens,
                                     const DivergenceOptions& o, const DivergenceProgress& progress) {
  const auto &p = model.capabilities(), &b = base.capabilities();
  if (p.vocab_size != b.vocab_size)
    return Error(Code::kInvalidArgument, fmt::format("a vocabulary of {} tokens against {} of the base", p.vocab_size, b.vocab_size),
                 "a divergence needs two models with the same vocabulary");
  SLM_ASSIGN_OR_RETURN(const int windows, CountWindows(tokens.size(), std::min(p.max_context, b.max_context), o.windows));
  SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(std::max(1, o.n_threads)));
  Pair pair{model, base, *team, {}};
  Tally tally;
  for (int i = 0; i < windows; ++i) {
    SLM_RETURN_IF_ERROR(ScoreWindow(pair, MakeWindow(tokens, i, o.windows), tally));
    if (progress && !progress(i + 1, windows, tally.kld.mean)) return Error(Code::kCancelled, "interrupted");
  }
  if (tally.kld.n == 0) return Error(Code::kInvalidArgument, "no token was scored", "use longer windows");
  return tally.Result(windows);
}

}  // namespace slm::eval
