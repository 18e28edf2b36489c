// The one loop: prefill what the cache does not hold yet, then sample, stream, feed back.
//
// Invariant: state_->cached equals the tokens in the back end's slots [0, used()). It is what makes prefix reuse safe after
// errors and cancellations, and it is restored first thing if a back end stopped half-way.
#include <algorithm>

#include "base/clock.h"
#include "decode/decode.h"
#include "decode/emitter.h"
#include "decode/sampler.h"

namespace slm::decode {

using backend::Logits;
using backend::LogitsOf;

struct Session::State {
  State(backend::Backend& b, const text::Tokenizer& t)
      : backend(b), tokenizer(t), sampler(b.capabilities().vocab_size, b.capabilities().max_context) {
    cached.reserve(static_cast<size_t>(b.capabilities().max_context));
  }

  Status CheckRequest(std::span<const int32_t> prompt, const GenerateOptions& options) const;
  Result<int> KeepPrefix(std::span<const int32_t> prompt);
  Result<Logits> Feed(std::span<const int32_t> tokens);
  Result<Logits> Prefill(std::span<const int32_t> rest, const CancelFlag& cancel);
  Status Decode(Logits logits, const GenerateOptions& options, Emitter& emitter, const CancelFlag& cancel, int64_t start_ns,
                GenerateStats& stats);

  backend::Backend& backend;
  const text::Tokenizer& tokenizer;
  Sampler sampler;
  std::vector<int32_t> cached;  // tokens in the cache, slot order
};

namespace {

bool IsEnd(int32_t token, const GenerateOptions& o) {
  return !o.ignore_eos && std::find(o.eos_ids.begin(), o.eos_ids.end(), token) != o.eos_ids.end();
}

}  // namespace

const char* FinishReasonName(FinishReason r) {
  switch (r) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "stop";
}

Session::Session(backend::Backend& backend, const text::Tokenizer& tokenizer) : state_(std::make_unique<State>(backend, tokenizer)) {}
Session::~Session() = default;

Status Session::Reset() {
  SLM_RETURN_IF_ERROR(state_->backend.Rewind(0));
  state_->cached.clear();
  return Ok();
}

Status Session::State::CheckRequest(std::span<const int32_t> prompt, const GenerateOptions& options) const {
  const auto& c = backend.capabilities();
  if (prompt.empty()) return Error(Code::kInvalidArgument, "the prompt has no tokens", "give at least one character of text");
  if (prompt.size() > static_cast<size_t>(c.max_context))
    return Error(Code::kLimit,
                 "the prompt has " + std::to_string(prompt.size()) + " tokens, the context holds " + std::to_string(c.max_context),
                 "shorten the prompt or load the model with a larger context (--ctx)");
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= c.vocab_size)
      return Error(Code::kInvalidArgument, "token " + std::to_string(prompt[i]) + " at place " + std::to_string(i) +
                                               " of the prompt is outside the vocabulary of " + std::to_string(c.vocab_size));
  if (options.max_tokens < 0) return Error(Code::kInvalidArgument, "max_tokens must be 0 (prefill only) or more");
  return Ok();
}

// Rewinds to the longest common beginning of cache and prompt; returns its length. The last token of the prompt is always
// evaluated again: its logits are needed, and the cache does not hold logits.
Result<int> Session::State::KeepPrefix(std::span<const int32_t> prompt) {
  const size_t filled = std::min(cached.size(), static_cast<size_t>(backend.used()));
  const auto end = std::mismatch(cached.begin(), cached.begin() + static_cast<ptrdiff_t>(filled), prompt.begin(), prompt.end()).first;
  const size_t keep = std::min(static_cast<size_t>(end - cached.begin()), prompt.size() - 1);
  if (static_cast<int>(keep) != backend.used()) SLM_RETURN_IF_ERROR(backend.Rewind(static_cast<int>(keep)));
  cached.resize(keep);
  return static_cast<int>(keep);
}

Result<Logits> Session::State::Feed(std::span<const int32_t> tokens) {
  auto logits = backend.Forward(tokens, LogitsOf::kLastToken);
  if (logits.ok()) cached.insert(cached.end(), tokens.begin(), tokens.end());  // within the reserved context
  return logits;
}

// No rows when cancelled before the last chunk.
Result<Logits> Session::State::Prefill(std::span<const int32_t> rest, const CancelFlag& cancel) {
  const size_t chunk = static_cast<size_t>(std::max(1, backend.capabilities().max_tokens));
  Logits logits;
  while (!rest.empty()) {
    if (cancel.cancelled()) return Logits{};
    const size_t n = std::min(chunk, rest.size());
    SLM_ASSIGN_OR_RETURN(logits, Feed(rest.first(n)));
    rest = rest.subspan(n);
  }
  return logits;
}

Status Session::State::Decode(Logits logits, const GenerateOptions& options, Emitter& emitter, const CancelFlag& cancel, int64_t start_ns,
                              GenerateStats& stats) {
  int64_t last_ns = 0;
  for (;;) {
    SLM_ASSIGN_OR_RETURN(const int32_t token, sampler.Sample(logits.Row(0)));
    const int64_t now_ns = NowNs();
    if (last_ns == 0) stats.ttft_ns = now_ns - start_ns;
    if (IsEnd(token, options)) {
      stats.finish_reason = FinishReason::kStop;
      return Ok();
    }
    if (last_ns != 0) stats.itl_ns.push_back(now_ns - last_ns);
    last_ns = now_ns;
    stats.tokens.push_back(token);
    sampler.Accept(token);
    if (emitter.Push(token) == Emitter::State::kStopped) {
      stats.finish_reason = FinishReason::kStop;
      return Ok();
    }
    if (static_cast<int>(stats.tokens.size()) == options.max_tokens) {
      stats.finish_reason = FinishReason::kLength;
      return Ok();
    }
    if (backend.used() == backend.capabilities().max_context) {
      stats.finish_reason = FinishReason::kContext;
      return Ok();
    }
    if (cancel.cancelled()) {
      stats.finish_reason = FinishReason::kCancelled;
      return Ok();
    }
    SLM_ASSIGN_OR_RETURN(logits, Feed({&token, 1}));
  }
}

Result<GenerateStats> Session::Generate(std::span<const int32_t> prompt, const GenerateOptions& options, TokenSink& sink,
                                        const CancelFlag& cancel) {
  State& s = *state_;
  const int64_t start_ns = NowNs();
  SLM_RETURN_IF_ERROR(s.CheckRequest(prompt, options));
  SLM_RETURN_IF_ERROR(s.sampler.Start(options.sampling, prompt));
  SLM_ASSIGN_OR_RETURN(Emitter emitter, Emitter::Create(s.tokenizer, options, sink));

  GenerateStats stats;
  const size_t room = static_cast<size_t>(s.backend.capabilities().max_context) - prompt.size() + 1;
  const size_t most = std::min(room, static_cast<size_t>(options.max_tokens));
  stats.tokens.reserve(most);
  stats.itl_ns.reserve(most);
  stats.prompt_tokens = static_cast<int>(prompt.size());
  SLM_ASSIGN_OR_RETURN(stats.cached_tokens, s.KeepPrefix(prompt));

  SLM_ASSIGN_OR_RETURN(const Logits first, s.Prefill(prompt.subspan(static_cast<size_t>(stats.cached_tokens)), cancel));
  const int64_t prefilled_ns = NowNs();
  stats.prefill_ns = prefilled_ns - start_ns;
  if (first.n_rows == 0) {
    stats.finish_reason = FinishReason::kCancelled;
  } else if (options.max_tokens == 0) {
    stats.finish_reason = FinishReason::kLength;
  } else {
    SLM_RETURN_IF_ERROR(s.Decode(first, options, emitter, cancel, start_ns, stats));
    emitter.Finish();
    stats.stop_string = emitter.stop_string();
  }
  stats.decode_ns = NowNs() - prefilled_ns;
  stats.generated_tokens = static_cast<int>(stats.tokens.size());
  return stats;
}

}  // namespace slm::decode
