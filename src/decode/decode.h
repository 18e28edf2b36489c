// The door of `decode`: one session turns prompt tokens into streamed text through any back end.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "text/text.h"

namespace slm::decode {

// Order of application: logit bias, repetition/presence/frequency penalties, temperature, top-k, top-p, min-p, draw.
// Defaults are neutral: greedy.
struct SamplingOptions {
  float temperature = 0;         // 0: greedy (arg-max, lowest id among equals)
  int top_k = 0;                 // 0: off
  float top_p = 1;               // nucleus (arXiv 1904.09751); 1: off
  float min_p = 0;               // arXiv 2407.01082; 0: off
  float repetition_penalty = 1;  // CTRL (arXiv 1909.05858): divides positive, multiplies negative logits of seen tokens
  float presence_penalty = 0;    // OpenAI: subtracted once from every token of this answer
  float frequency_penalty = 0;   // OpenAI: subtracted per occurrence in this answer
  int penalty_window = 64;       // repetition penalty: last tokens (prompt and answer) that count; 0: none, -1: all
  std::vector<std::pair<int32_t, float>> logit_bias;  // added; -infinity bans
  uint64_t seed = 0;                                  // same seed, same back end, same text
};
// Can a model of `vocab_size` tokens be sampled so? Errors: kInvalidArgument, naming the option.
Status CheckSampling(const SamplingOptions& options, int vocab_size);

struct GenerateOptions {
  SamplingOptions sampling;
  int max_tokens = 256;           // >= 0; 0: prefill only
  std::vector<std::string> stop;  // stop strings, cut from the text
  std::vector<int32_t> eos_ids;   // ids that end the answer
  bool ignore_eos = false;
  bool show_special = false;                                // special tokens appear in the text
  text::FirstSpace first_space = text::FirstSpace::kStrip;  // kKeep: the answer continues a plain prompt
};

enum class FinishReason : uint8_t { kStop, kLength, kContext, kCancelled };  // kStop: EOS or a stop string
const char* FinishReasonName(FinishReason r);                                // "stop", "length", "context", "cancelled"

struct GenerateStats {
  FinishReason finish_reason = FinishReason::kStop;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t ttft_ns = 0;  // start of Generate to the first token sampled
  int64_t prefill_ns = 0, decode_ns = 0;
  std::vector<int64_t> itl_ns;  // gaps between tokens [generated_tokens - 1]
  std::vector<int32_t> tokens;  // generated ids, end token not included
  std::string stop_string;      // which one ended it, may be empty
};

// Takes text as it becomes certain. Called on the thread that runs Generate.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnText(std::string_view utf8) = 0;  // whole characters only
};

// Set from any thread (or a signal handler) to stop a running Generate after the token in flight.
class CancelFlag {
 public:
  CancelFlag() = default;
  // Watches a flag of the caller's (the one a signal handler sets), which must outlive this object.
  explicit CancelFlag(std::atomic<bool>& flag) : flag_(&flag) {}
  CancelFlag(const CancelFlag&) = delete;
  CancelFlag& operator=(const CancelFlag&) = delete;
  void Cancel() { flag_->store(true, std::memory_order_relaxed); }
  void Clear() { flag_->store(false, std::memory_order_relaxed); }
  bool cancelled() const { return flag_->load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> own_{false};
  std::atomic<bool>* flag_ = &own_;
};

// One conversation on one back end. Remembers the tokens in the cache: a prompt that begins with them is evaluated from the
// first difference only (cached_tokens). Not thread-safe.
class Session {
 public:
  // Both must outlive the session.
  Session(backend::Backend& backend, const text::Tokenizer& tokenizer);
  ~Session();
  // Evaluates the prompt [T] in chunks, then generates. Errors: kLimit when the prompt does not fit the context (both numbers
  // named), kInvalidArgument for bad options (named), and what the back end says. In the steady state of the token loop
  // nothing is allocated.
  Result<GenerateStats> Generate(std::span<const int32_t> prompt, const GenerateOptions& options, TokenSink& sink,
                                 const CancelFlag& cancel);
  // Forgets everything.
  Status Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slm::decode
