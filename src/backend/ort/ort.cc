// The back end itself: checks what comes in, runs the session, checks what goes out.
#include "backend/ort/ort.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backend/ort/copies.h"
#include "backend/ort/feeds.h"
#include "backend/ort/session_checks.h"
#include "backend/ort/session_kv_port.h"
#include "kv/kv.h"

namespace slm::backend::ort {
namespace {

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
    SLM_RETURN_IF_ERROR(CheckCall(capabilities_, shape_.logits, tokens, which));
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
    std::vector<PlacementRow> rows;
    AddPlacement(session_, rows);
    if (copies_)
      rows.push_back({"Memcpy", copies_->count, "cpu", "ort", "between memories",
                      fmt::format("copies of {} bytes in the run that warmed up", copies_->bytes)});
    return rows;
  }

  KvPort* kv_port() override { return port_.get(); }

  void OfferCache(const DecoderIo& io, const Decoder& d) {
    port_ = SessionKvPort::Create(io, d, capabilities_.max_context, feeds_, cursor_);
  }

  Status WarmUp() {
    const int32_t token = 0;
    SLM_RETURN_IF_ERROR(feeds_.Run({&token, 1}, 0, 0));
    if (shape_.profiled) {
      auto counted = EndProfile(session_.runtime->api(), session_.session.get());
      if (counted.ok()) copies_ = counted.value();  // a profile that cannot be read stops no run
    }
    capabilities_.activations_bytes = feeds_.other_bytes() + ArenaBytes(session_);
    return Ok();
  }

 private:
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
    SLM_RETURN_IF_ERROR(CheckLogits({out.data, static_cast<size_t>(rows) * static_cast<size_t>(vocab)}));
    return out;
  }

  OpenSession session_;
  Feeds feeds_;  // before the session in destruction
  Capabilities capabilities_;
  const Shape shape_;
  std::optional<Copies> copies_;
  kv::Cursor cursor_;
  std::unique_ptr<SessionKvPort> port_;
};

Capabilities CapabilitiesOf(const OpenSession& s, const Decoder& d, int64_t kv_bytes, const OrtOptions& o) {
  Capabilities c;
  c.device = DeviceOf(s);
  c.backend = "ort";
  c.isa = "onnxruntime " + s.runtime->loaded().version;
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
  backend->OfferCache(ports, d);
  if (const Status s = backend->WarmUp(); !s.ok()) return s.error().At(d.path);
  SLM_RETURN_IF_ERROR(CheckBudget(backend->capabilities(), o.memory_budget_bytes));
  out.backend = std::move(backend);
  return out;
}

}  // namespace slm::backend::ort
