// The scripted back end: compares what it is fed with the script and answers with scripted rows.
#include "backend/fake/fake.h"

#include <algorithm>

namespace slm::backend {

FakeBackend::FakeBackend(FakeScript script) : script_(std::move(script)) {
  capabilities_.device = "fake";
  capabilities_.backend = "fake";
  capabilities_.isa = "none";
  capabilities_.max_context = script_.max_context;
  capabilities_.max_tokens = script_.max_tokens;
  capabilities_.vocab_size = script_.vocab_size;
  rows_.resize(static_cast<size_t>(script_.max_tokens) * script_.vocab_size);
  capabilities_.activations_bytes = static_cast<int64_t>(rows_.size() * sizeof(float));
  // The logs must not allocate inside a test that counts allocations.
  constexpr size_t kLoggedCalls = 1 << 16;
  chunks_.reserve(kLoggedCalls);
  rewinds_.reserve(kLoggedCalls);
}

Status FakeBackend::Check(std::span<const int32_t> tokens) const {
  const int n = static_cast<int>(tokens.size());
  if (n < 1 || n > script_.max_tokens)
    return Error(Code::kInvalidArgument,
                 "fake: " + std::to_string(n) + " tokens in one call, 1 to " + std::to_string(script_.max_tokens) + " are possible");
  if (used_ + n > script_.max_context)
    return Error(Code::kLimit,
                 "fake: " + std::to_string(used_ + n) + " tokens do not fit the context of " + std::to_string(script_.max_context));
  for (int i = 0; i < n; ++i) {
    const int slot = used_ + i;
    if (script_.failure && slot == script_.fail_slot) return *script_.failure;
    if (tokens[i] < 0 || tokens[i] >= script_.vocab_size)
      return Error(Code::kInvalidArgument,
                   "fake: token " + std::to_string(tokens[i]) + " is outside the vocabulary of " + std::to_string(script_.vocab_size));
    const bool scripted = slot < static_cast<int>(script_.tokens.size());
    if (!scripted || script_.tokens[slot] != tokens[i])
      return Error(Code::kInternal, "fake: slot " + std::to_string(slot) + " expects " +
                                        (scripted ? "token " + std::to_string(script_.tokens[slot]) : std::string("no token")) + ", got " +
                                        std::to_string(tokens[i]));
  }
  return Ok();
}

void FakeBackend::FillRow(int slot, float* row) const {
  const auto replayed = script_.logits.find(slot);
  if (replayed != script_.logits.end()) {
    std::copy_n(replayed->second.begin(), std::min<size_t>(replayed->second.size(), script_.vocab_size), row);
    return;
  }
  std::fill_n(row, script_.vocab_size, 0.0f);
  if (slot < static_cast<int>(script_.tokens.size())) row[script_.tokens[slot]] = 10.0f;
}

Result<Logits> FakeBackend::Forward(std::span<const int32_t> tokens, LogitsOf which) {
  SLM_RETURN_IF_ERROR(Check(tokens));
  const int n = static_cast<int>(tokens.size());
  used_ += n;
  chunks_.push_back(n);
  const int n_rows = which == LogitsOf::kAllTokens ? n : 1;
  for (int i = 0; i < n_rows; ++i) FillRow(used_ - n_rows + 1 + i, rows_.data() + static_cast<size_t>(i) * script_.vocab_size);
  return Logits{rows_.data(), n_rows, script_.vocab_size, script_.vocab_size};
}

Status FakeBackend::Rewind(int position) {
  if (position < 0 || position > used_)
    return Error(Code::kInvalidArgument,
                 "fake: rewind to " + std::to_string(position) + " with " + std::to_string(used_) + " slots in use");
  used_ = position;
  rewinds_.push_back(position);
  return Ok();
}

std::vector<PlacementRow> FakeBackend::Placement() const { return {{"Script", 1, "fake", "fake", "replay", "scripted answers"}}; }

}  // namespace slm::backend
