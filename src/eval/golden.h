// Golden answers: what a model said once, kept small, to tell later whether a file made from it still says the same here.
//
// Of each step the most probable tokens are kept with their log-probabilities, and the share of all others as what is left of 1. The
// divergence over this partition is never more than that over the whole vocabulary (data processing inequality; Cover and Thomas,
// Elements of Information Theory, 2.8).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace slm::eval {

struct GoldenStep {
  std::vector<int32_t> ids;       // [n] most probable first, the lower id first among equals
  std::vector<double> log_probs;  // [n] nats
};

struct GoldenAnswer {
  std::vector<int32_t> prompt, answer;  // answer: the most probable token of each step
  std::vector<GoldenStep> steps;        // one a token of the answer
};

// Called after each prompt and each answer; false cancels.
using GoldenProgress = std::function<bool()>;

// Answers `prompt` with `n_steps` tokens and keeps `n_top` of each step. The cache is emptied. Errors: kInvalidArgument (no prompt, no
// step, a context that is too short), kCancelled, and the back end's.
Result<GoldenAnswer> RecordGolden(backend::Backend& backend, std::span<const int32_t> prompt, int n_steps, int n_top,
                                  const GoldenProgress& progress = {});

struct GoldenMatch {
  double mean_kld = 0, max_kld = 0;  // nats a step, of the recorded distribution from this one
  int64_t steps = 0, same_top = 0;   // steps, and those with the recorded most probable token
  std::vector<int64_t> step_ns;      // time of each step's Forward of one token
};

// Feeds the recorded answers and compares each step. Errors: kInvalidArgument (ids outside the vocabulary, a context that is too short),
// kCancelled, and the back end's.
Result<GoldenMatch> CompareGolden(backend::Backend& backend, std::span<const GoldenAnswer> answers, const GoldenProgress& progress = {});

// The smallest time that `share` (0 to 1) of the times do not exceed; 0 for none.
int64_t NearestRank(std::vector<int64_t> times, double share);

}  // namespace slm::eval
