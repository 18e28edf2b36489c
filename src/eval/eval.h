// The door of `eval`: quality of a model as it runs here, through the same back end that answers users.
//
// Everything is streamed window by window: what is kept of a scored token is one number at most, whatever the vocabulary.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "backend/backend.h"
#include "base/result.h"

namespace slm::eval {

// Two ways to cut a text into windows; their figures must never be compared with each other.
enum class Protocol : uint8_t {
  kGptq,   // windows of C tokens one after the other, every token but a window's first is scored (GPTQ, arXiv 2210.17323)
  kLlama,  // llama-perplexity's: windows of C tokens whose first token is replaced by BOS, the second half is scored
};
const char* ProtocolName(Protocol p);  // "gptq", "llama.cpp"

struct WindowOptions {
  Protocol protocol = Protocol::kGptq;
  int window = 512;     // C, tokens
  int max_windows = 0;  // 0: all; the last incomplete window is left out
  int32_t bos = -1;     // -1: none. kGptq puts it before each window as an unscored token when >= 0
};

// How many windows `n_tokens` make for a back end with this context, at least 1. Pure; any thread. Errors: kInvalidArgument (text shorter
// than one window, a window below 2 tokens, kLlama: 4, context too short for a window and its begin token).
Result<int> CountWindows(size_t n_tokens, int max_context, const WindowOptions& options);

struct Perplexity {
  int64_t scored_tokens = 0;
  int windows = 0;
  double mean_nll = 0;   // nats a token
  double sigma_nll = 0;  // standard error of the mean
  double ppl = 0;        // exp(mean_nll)
  double ppl_sigma = 0;  // ppl * sigma_nll
};

// Called after each window with (done, all, so far). Returning false cancels.
using PerplexityProgress = std::function<bool(int, int, const Perplexity&)>;

// Perplexity of `tokens` [N] on a back end opened for LogitsOf::kAllTokens with a context of at least window + 1. The cache is
// emptied. Log-probabilities in double. Errors: CountWindows', kCancelled, and what the back end says.
Result<Perplexity> MeasurePerplexity(backend::Backend& backend, std::span<const int32_t> tokens, const WindowOptions& options,
                                     const PerplexityProgress& progress = {});

// Negative log-probability of `target` under softmax(logits), nats.
double NegativeLogProbability(std::span<const float> logits, int32_t target);

// A mean with its standard error: the root of the population variance over n - 1; 0 for one value.
struct Estimate {
  double mean = 0, sigma = 0;
};

// How far the distributions of a model P are from those of its base B at the scored tokens. Names follow llama-perplexity's
// --kl-divergence, whose file of 16-bit log-probabilities this does without.
struct Divergence {
  int64_t scored_tokens = 0;
  int windows = 0;
  Perplexity model, base;
  Estimate kld;                       // KL(B || P) a token, nats
  double p50 = 0, p90 = 0, p95 = 0;   // percentiles of the KLD over tokens: linear between the two order statistics
  double p99 = 0, p999 = 0, max = 0;  // round (n - 1) q, the default of numpy.percentile
  Estimate top1;                      // share of tokens whose most probable successor (the lowest id of equals) is the same
  Estimate delta_p;                   // P - B of the right token's probability
  Estimate rms_delta_p;               // root of the mean square of that; sigma to first order
  double rms_logits = 0;              // root mean square of P's logits less B's, over that of B's
  Estimate dlnppl;                    // ln PPL(P) - ln PPL(B); sigma of the paired differences
  double correlation = 0;             // Pearson's, of the two models' nll; NaN when one of them does not vary
};

struct DivergenceOptions {
  WindowOptions windows;
  int n_threads = 1;  // that share the rows of logits, besides the back ends' own
};

// Called after each window with (done, all, mean KLD so far). Returning false cancels.
using DivergenceProgress = std::function<bool(int, int, double)>;

// Both models side by side over the windows of `tokens` [N]: a chunk is evaluated by one, then by the other, its rows are compared and
// forgotten; 8 bytes stay for each scored token. Preconditions as for MeasurePerplexity, for both; the two must not be the same object.
// KL in double from one log-sum-exp a row and side, so that equal rows give exactly 0. Errors besides those of MeasurePerplexity:
// kInvalidArgument when the widths of the logits differ (both named), kLimit when a thread cannot be started.
Result<Divergence> MeasureDivergence(backend::Backend& model, backend::Backend& base, std::span<const int32_t> tokens,
                                     const DivergenceOptions& options, const DivergenceProgress& progress = {});

}  // namespace slm::eval
