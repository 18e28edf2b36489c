// See session_checks.h.
#include "backend/ort/session_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

namespace slm::backend::ort {
namespace {

// Without a way out of the loop, so that it is computed several values at a time.
bool AllFinite(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad[kLanes] = {};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) bad[j] |= (std::bit_cast<uint32_t>(values[i + j]) & kExponent) == kExponent ? 1u : 0u;
  for (size_t i = whole; i < values.size(); ++i) bad[0] |= std::isfinite(values[i]) ? 0u : 1u;
  return std::all_of(bad, bad + kLanes, [](uint32_t b) { return b == 0; });
}

}  // namespace

Status CheckCall(const Capabilities& c, LogitsOf at_load, std::span<const int32_t> tokens, LogitsOf which) {
  if (tokens.empty() || static_cast<int64_t>(tokens.size()) > c.max_tokens)
    return Error(Code::kInvalidArgument, fmt::format("{} tokens in one call", tokens.size()), fmt::format("give 1 to {}", c.max_tokens));
  if (which == LogitsOf::kAllTokens && at_load != LogitsOf::kAllTokens)
    return Error(Code::kInvalidArgument, "logits of all tokens were not asked for at load", "set OrtOptions::logits");
  for (const int32_t t : tokens)
    if (t < 0 || t >= c.vocab_size)
      return Error(Code::kInvalidArgument, fmt::format("token {} is outside the vocabulary of {}", t, c.vocab_size), "check the tokenizer");
  return Ok();
}

Status CheckLogits(std::span<const float> logits) {
  if (AllFinite(logits)) return Ok();
  return Error(Code::kCorrupt, "logits are NaN or infinite; where it began, ONNX Runtime does not say",
               "the weights are damaged or overflow: check the files' sha256");
}

Status CheckBudget(const Capabilities& c, int64_t budget) {
  const int64_t total = c.weights_bytes + c.kv_bytes + c.activations_bytes;
  if (budget <= 0 || total <= budget) return Ok();
  const std::string runtime = c.activations_bytes > 0 ? fmt::format(", runtime {}", c.activations_bytes) : "";
  return Error(Code::kLimit,
               fmt::format("needs {}{} bytes (weights {}, KV cache {}{}), the budget is {}", runtime.empty() ? "at least " : "", total,
                           c.weights_bytes, c.kv_bytes, runtime, budget),
               "reduce the context or the model, or raise the budget");
}

void AddPlacement(const OpenSession& s, std::vector<PlacementRow>& rows) {
  const std::string reason = s.providers.empty() || s.placed.nodes.empty() ? "" : "left by " + s.providers[0];
  for (const NodePlace& n : s.placed.nodes) {
    const auto same = [&](const PlacementRow& r) { return r.op == n.op && r.kernel == n.provider; };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {n.op, 0, n.device, "ort", n.provider, n.provider == kCpuProvider ? reason : ""});
    ++row->count;
  }
}

std::string DeviceOf(const OpenSession& s) {
  std::string device = "cpu";
  for (const NodePlace& n : s.placed.nodes)
    if (n.provider != kCpuProvider) device = n.device;
  return device;
}

int64_t ArenaBytes(const OpenSession& s) {
  const OrtApi& api = s.runtime->api();
  const auto info = Make<MemoryInfo>(api, [&](auto** out) { return api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, out); });
  if (!info.ok()) return 0;
  const auto arena = Make<Allocator>(api, [&](auto** out) { return api.CreateAllocator(s.session.get(), info.value().get(), out); });
  if (!arena.ok()) return 0;
  const auto stats = Make<KeyValues>(api, [&](auto** out) { return api.AllocatorGetStats(arena.value().get(), out); });
  const char* text = stats.ok() && stats.value() ? api.GetKeyValue(stats.value().get(), "TotalAllocated") : nullptr;
  int64_t bytes = 0;
  if (text) std::from_chars(text, text + std::char_traits<char>::length(text), bytes);
  return bytes;
}

}  // namespace slm::backend::ort
