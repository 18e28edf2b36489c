// From logits to a token: penalties, filters and one draw, all memory taken before the token loop.
//
// Why own: the result must be the same on every platform. Probabilities are integer weights (parts of 2^40 of the likeliest
// token), so sums do not depend on order or rounding, and the draw is exact integer arithmetic on std::mt19937_64, whose
// output the C++ standard fixes. Filters select (heap, quickselect by mass); 262k logits are never sorted.
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/result.h"
#include "decode/decode.h"

namespace slm::decode {

// A token that may be drawn; probability = weight / sum of weights.
struct Candidate {
  float logit = 0;  // after bias and penalties, before temperature
  int32_t id = 0;
  uint64_t weight = 0;
};

// Highest value and its lowest index in one pass. id is -1 for an empty row or one that is -infinity throughout.
struct Peak {
  int32_t id = -1;
  float value = 0;
  bool finite = true;  // false: at least one NaN or infinity; id and value mean nothing then
};
Peak FindPeak(std::span<const float> row);

// Parts of 2^40 of exp(z), z <= 0; 0 below -28. The same on every platform (no libm); relative error below 1e-8.
uint64_t WeightOf(double z);

class Sampler {
 public:
  // vocab_size: V. max_context: S, the most tokens that a window of -1 can hold.
  Sampler(int vocab_size, int max_context) : vocab_size_(vocab_size), max_context_(max_context) {}

  // Begins an answer: seeds, counts the prompt's tokens, takes all memory. Errors: kInvalidArgument naming the option.
  Status Start(const SamplingOptions& options, std::span<const int32_t> prompt);

  // Draws from logits [V] f32. No allocation on success. Errors: kCorrupt (NaN or infinity), kInvalidArgument (a row that is
  // not V wide, or a bias that bans every token).
  Result<int32_t> Sample(std::span<const float> logits);

  // Counts a token of the answer for the penalties. Call it for every sampled token that goes on.
  void Accept(int32_t token);

  // What the last Sample drew from, in no particular order; empty when greedy.
  std::span<const Candidate> candidates() const { return {candidates_.data(), static_cast<size_t>(n_)}; }

 private:
  void CountInWindow(int32_t token);
  void Adjust(std::span<const float> logits);
  void PenaliseRepetition();
  void Gather(std::span<const float> x, float max);
  void GatherTopK(std::span<const float> x);
  void KeepNucleus();
  void DropUnlikely();
  int32_t Draw();

  int vocab_size_, max_context_;
  SamplingOptions options_;
  std::mt19937_64 random_;
  bool adjusts_ = false;               // bias or penalties are on
  std::vector<float> adjusted_;        // [V] or empty
  std::vector<Candidate> candidates_;  // [V], [top_k] or empty; the first n_ count
  int n_ = 0;
  std::vector<int32_t> window_;  // ring of the last tokens; repetition penalty
  size_t window_next_ = 0, window_size_ = 0;
  std::vector<int32_t> window_counts_;    // [V] or empty
  std::vector<int32_t> answer_counts_;    // [V] or empty; presence and frequency penalties
  std::vector<int32_t> answer_distinct_;  // tokens with answer_counts_ > 0
};

}  // namespace slm::decode
