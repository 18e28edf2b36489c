// The back end itself: checks what comes in, runs the session, checks what goes out.
#include "backend/ort/ort.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "backend/ort/copies.h"
#include "backend/ort/feeds.h"
#include "kv/kv.h"

namespace slm::backend::ort {
namespace {

// A statistic of the CPU's arena in the session; 0 when the runtime keeps none.
int64_t ArenaBytes(const OrtApi& api, const OrtSession* session, const char* key) {
  const auto info = Make<MemoryInfo>(api, [&](auto** out) { return api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, out); });
  if (!info.ok()) return 0;
  const auto arena = Make<Allocator>(api, [&](auto** out) { return api.CreateAllocator(session, info.value().get(), out); });
  if (!arena.ok()) return 0;
  const auto stats = Make<KeyValues>(api, [&](auto** out) { return api.AllocatorGetStats(arena.value().get(), out); });
  const char* text = stats.ok() && stats.value() ? api.GetKeyValue(stats.value().get(), key) : nullptr;
  int64_t bytes = 0;
  if (text) std::from_chars(text, text + std::char_traits<char>::length(text), bytes);
  return bytes;
}

// One row an operator and provider.
std::vector<PlacementRow> RowsOf(const OpenSession& s) {
  std::vector<PlacementRow> rows;
  const std::string reason = s.providers.empty() || s.placed.nodes.empty() ? "" : "left by " + s.providers[0];
  for (const NodePlace& n : s.placed.nodes) {
    const auto same = [&](const PlacementRow& r) { return r.op == n.op && r.kernel == n.provider; };
    auto row = std::find_if(rows.begin(), rows.end(), same);
    if (row == rows.end()) row = rows.insert(row, {n.op, 0, n.device, "ort", n.provider, n.provider == kCpuProvider ? reason : ""});
    ++row->count;
  }
  return rows;
}

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

struct Shape {
  LogitsOf logits = LogitsOf::kLastToken;  // that were asked for at load
  bool last_row_only = false;              // the graph gives no others
  bool profiled = false;
};

class SessionBackend final : public Backend {
 public:
  SessionBackend(OpenSession session, Feeds feeds, Capabilities c, const Shape& shape)
      : session_(std::move(session)),
        feeds_(std::move(feeds)),
        capabilities_(std::move(c)),
        shape_(shape),
        cursor_(capabilities_.max_context) {}

  Result<Logits> Forward(std::span<const int32_t> tokens, LogitsOf which) override {
    SLM_RETURN_IF_ERROR(CheckCall(tokens, which));
    const int n = static_cast<int>(tokens.size());
    SLM_ASSIGN_OR_RETURN(const int64_t first, cursor_.Advance(n));
    auto logits = Evaluate(tokens, static_cast<int>(first), which);
    if (!logits.ok()) SLM_RETURN_IF_ERROR(cursor_.Rewind(first));
    return logits;
  }
  // What lies behind the position is never read: the length of the mask says how far the cache reaches.
  Status Rewind(int position) override { return cursor_.Rewind(position); }
  int used() const override { return static_cast<int>(cursor_.used()); }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<PlacementRow> Placement() const override {
    std::vector<PlacementRow> rows = RowsOf(session_);
    if (copies_)
      rows.push_back({"Memcpy", copies_->count, "cpu", "ort", "between memories",
                      fmt::format("copies of {} bytes in the run that warmed up", copies_->bytes)});
    return rows;
  }

  Status WarmUp() {
    const int32_t token = 0;
    SLM_RETURN_IF_ERROR(feeds_.Run({&token, 1}, 0, 0));
    if (shape_.profiled) {
      auto counted = EndProfile(session_.runtime->api(), session_.session.get());
      if (counted.ok()) copies_ = counted.value();  // a profile that cannot be read stops no run
    }
    capabilities_.activations_bytes = feeds_.other_bytes() + ArenaBytes(session_.runtime->api(), session_.session.get(), "TotalAllocated");
    return Ok();
  }

 private:
  Status CheckCall(std::span<const int32_t> tokens, LogitsOf which) const {
    const Capabilities& c = capabilities_;
    if (tokens.empty() || static_cast<int64_t>(tokens.size()) > c.max_tokens)
      return Error(Code::kInvalidArgument, fmt::format("{} tokens in one call", tokens.size()), fmt::format("give 1 to {}", c.max_tokens));
    if (which == LogitsOf::kAllTokens && shape_.logits != LogitsOf::kAllTokens)
      return Error(Code::kInvalidArgument, "logits of all tokens were not asked for at load", "set OrtOptions::logits");
    for (const int32_t t : tokens)
      if (t < 0 || t >= c.vocab_size)
        return Error(Code::kInvalidArgument, fmt::format("token {} is outside the vocabulary of {}", t, c.vocab_size),
                     "check the tokenizer");
    return Ok();
  }

  Result<Logits> Evaluate(std::span<const int32_t> tokens, int first, LogitsOf which) {
    const int n = static_cast<int>(tokens.size()), vocab = capabilities_.vocab_size;
    int begin = 0, rows = 1;
    if (which == LogitsOf::kAllTokens && shape_.last_row_only) {
      for (int i = 0; i < n; ++i) SLM_RETURN_IF_ERROR(feeds_.Run(tokens.subspan(static_cast<size_t>(i), 1), first + i, i));
      rows = n;
    } else {
      SLM_RETURN_IF_ERROR(feeds_.Run(tokens, first, 0));
      begin = shape_.last_row_only || which == LogitsOf::kAllTokens ? 0 : n - 1;
      rows = which == LogitsOf::kAllTokens ? n : 1;
    }
    const Logits out{feeds_.logits() + static_cast<int64_t>(begin) * vocab, rows, vocab, vocab};
    if (!AllFinite({out.data, static_cast<size_t>(rows) * static_cast<size_t>(vocab)}))
      return Error(Code::kCorrupt, "logits are NaN or infinite; where it began, ONNX Runtime does not say",
                   "the weights are damaged or overflow: check the files' sha256");
    return out;
  }

  OpenSession session_;
  Feeds feeds_;  // before the session in destruction
  Capabilities capabilities_;
  const Shape shape_;
  std::optional<Copies> copies_;
  kv::Cursor cursor_;
};

Capabilities CapabilitiesOf(const OpenSession& s, const Decoder& d, int64_t kv_bytes, const OrtOptions& o) {
  Capabilities c;
  c.device = "cpu";
  for (const NodePlace& n : s.placed.nodes)
    if (n.provider != kCpuProvider) c.device = n.device;
  c.backend = "ort";
  c.isa = "onnxruntime " + s.runtime->library().version;
  c.n_threads = s.runtime->n_threads();
  c.max_context = o.context;
  c.max_tokens = std::min(o.chunk, o.context);
  c.vocab_size = d.vocab_size;
  c.weights_bytes = d.weights_bytes;
  c.kv_bytes = kv_bytes;
  c.bytes_per_token = d.bytes_per_token;
  c.ops_per_token = d.ops_per_token;
  return c;
}

Status CheckOptions(const Decoder& d, const OrtOptions& o) {
  if (d.n_layers < 1 || d.vocab_size < 1)
    return Error(Code::kUnsupported, d.path + ": the number of layers or of words is not stated", "export or fetch the folder again");
  if (o.context < 1 || o.chunk < 1 || (d.context > 0 && o.context > d.context))
    return Error(Code::kInvalidArgument, fmt::format("a context of {} tokens, in calls of {}", o.context, o.chunk),
                 fmt::format("the decoder was made for 1 to {}", d.context));
  return Ok();
}

// Of what is known of `c`: memory of the runtime is 0 until it has run.
Status CheckBudget(const Capabilities& c, int64_t budget) {
  const int64_t total = c.weights_bytes + c.kv_bytes + c.activations_bytes;
  if (budget <= 0 || total <= budget) return Ok();
  const std::string runtime = c.activations_bytes > 0 ? fmt::format(", runtime {}", c.activations_bytes) : "";
  return Error(Code::kLimit,
               fmt::format("needs {}{} bytes (weights {}, KV cache {}{}), the budget is {}", runtime.empty() ? "at least " : "", total,
                           c.weights_bytes, c.kv_bytes, runtime, budget),
               "reduce the context or the model, or raise the budget");
}

}  // namespace

Result<OrtBackend> CreateOrtBackend(const std::shared_ptr<Runtime>& runtime, const Decoder& d, const OrtOptions& o) {
  SLM_RETURN_IF_ERROR(CheckOptions(d, o));
  Capabilities weights;
  weights.weights_bytes = d.weights_bytes;
  SLM_RETURN_IF_ERROR(CheckBudget(weights, o.memory_budget_bytes));
  const ProfileFolder profile;  // outlives the session, which ends its profile when it goes
  SLM_ASSIGN_OR_RETURN(OpenSession session, MakeSession(runtime, d.path, o.choice, {.profile = profile.prefix(), .config = {}}));
  auto io = ReadIo(runtime->api(), session.session.get(), d);
  if (!io.ok()) return io.error().At(d.path);
  const DecoderIo& ports = io.value();
  SLM_ASSIGN_OR_RETURN(const CachePlan cache, PlanCache(ports, o.context));
  const Capabilities c = CapabilitiesOf(session, d, static_cast<int64_t>(cache.bytes), o);
  SLM_RETURN_IF_ERROR(CheckBudget(c, o.memory_budget_bytes));
  const bool rows = o.logits == LogitsOf::kAllTokens || !ports.last_row_only;
  SLM_ASSIGN_OR_RETURN(
      Feeds feeds,
      Feeds::Create(
          runtime->api(), session.session.get(), ports,
          {.context = o.context, .chunk = c.max_tokens, .vocab = d.vocab_size, .logits_rows = rows ? c.max_tokens : 1, .cache = cache}));
  OrtBackend out;
  out.kv_type = ElementName(ports.cache[0].past.type);
  out.notes = session.placed.notes;
  const Shape shape{
      .logits = o.logits, .last_row_only = ports.last_row_only, .profiled = !session.providers.empty() && !profile.prefix().empty()};
  auto backend = std::make_unique<SessionBackend>(std::move(session), std::move(feeds), c, shape);
  if (const Status s = backend->WarmUp(); !s.ok()) return s.error().At(d.path);
  SLM_RETURN_IF_ERROR(CheckBudget(backend->capabilities(), o.memory_budget_bytes));
  out.backend = std::move(backend);
  return out;
}

}  // namespace slm::backend::ort
