// See static.h: splits a call between the prefix, which is in the cache from the start, and the smallest graph that holds the rest.
#include "backend/ort/static.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/ort/session_checks.h"
#include "backend/ort/static_session.h"
#include "kv/kv.h"

namespace slm::backend::ort {
namespace {

const char* NameOf(StaticType t) {
  switch (t) {
    case StaticType::kU16: return "uint16";
    case StaticType::kI16: return "int16";
    case StaticType::kF32: break;
  }
  return "f32";
}

class StaticBackend final : public Backend, private KvPort {
 public:
  // `decoder` of which CheckDecoder is content.
  StaticBackend(const StaticDecoder& decoder, const OrtOptions& o)
      : d_(decoder), at_load_(o.logits), cursor_(o.context > 0 ? std::min(o.context, d_.context) : d_.context) {}

  Status Open(const std::shared_ptr<Runtime>& runtime, const OrtOptions& o, std::vector<std::string>& notes) {
    Capabilities& c = capabilities_;
    SLM_ASSIGN_OR_RETURN(c.kv_bytes, StaticCache::BytesFor(d_));
    Describe(*runtime);
    SLM_RETURN_IF_ERROR(CheckBudget(c, o.memory_budget_bytes));
    SLM_ASSIGN_OR_RETURN(cache_, StaticCache::Create(d_));
    for (const StaticGraph& graph : d_.graphs) {
      auto session = OpenGraph(runtime, graph);
      if (!session.ok()) return session.error().At(graph.path);
      for (const std::string& note : session.value().session().placed.notes)
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
      sessions_.push_back(session.Take());
    }
    if (prefix() > 0 && at_load_ == LogitsOf::kAllTokens) {
      SLM_ASSIGN_OR_RETURN(joined_,
                           Buffer::Allocate(static_cast<size_t>(c.max_tokens) * static_cast<size_t>(d_.vocab_size) * sizeof(float)));
    }
    SLM_RETURN_IF_ERROR(WarmUp());
    return CheckBudget(c, o.memory_budget_bytes);
  }

  Result<Logits> Forward(std::span<const int32_t> tokens, LogitsOf which) override {
    SLM_RETURN_IF_ERROR(CheckCall(capabilities_, at_load_, tokens, which));
    SLM_RETURN_IF_ERROR(CheckPrefix(tokens, which));
    SLM_ASSIGN_OR_RETURN(const int64_t first, cursor_.Advance(static_cast<int64_t>(tokens.size())));
    auto logits = Evaluate(tokens, static_cast<int>(first), which);
    if (!logits.ok()) SLM_RETURN_IF_ERROR(cursor_.Rewind(first));
    return logits;
  }
  // What lies behind the position is masked. The prefix stays where it is.
  Status Rewind(int position) override { return cursor_.Rewind(position); }
  int used() const override { return static_cast<int>(cursor_.used()); }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<PlacementRow> Placement() const override {
    std::vector<PlacementRow> rows;
    for (const StaticSession& s : sessions_) AddPlacement(s.session(), rows);
    return rows;
  }
  KvPort* kv_port() override {
    const auto layers = static_cast<size_t>(d_.n_layers);
    const bool known = d_.cache_type == StaticType::kF32 || (d_.key_scales.size() == layers && d_.value_scales.size() == layers);
    return known ? this : nullptr;
  }

 private:
  KvShape shape() const override { return {d_.n_layers, d_.n_kv_heads, d_.head_dim}; }
  StaticCache::Scales ScalesOf(int layer) const {
    if (d_.key_scales.empty()) return {};
    return {d_.key_scales[static_cast<size_t>(layer)], d_.value_scales[static_cast<size_t>(layer)]};
  }
  void Read(int layer, int first, int n, float* keys, float* values) const override {
    cache_->Read(layer, first, n, ScalesOf(layer), keys, values);
  }
  void Write(int layer, int first, int n, const float* keys, const float* values) override {
    cache_->Write(layer, first, n, ScalesOf(layer), keys, values);
  }
  Status Take(int position) override { return cursor_.Take(position); }

  int prefix() const { return static_cast<int>(d_.prefix_tokens.size()); }

  void Describe(const Runtime& runtime) {
    Capabilities& c = capabilities_;
    c.device = "cpu";
    c.backend = "ort";
    c.isa = "onnxruntime " + runtime.loaded().version;
    c.n_threads = runtime.n_threads();
    c.max_context = static_cast<int>(cursor_.capacity());
    for (const StaticGraph& g : d_.graphs) c.max_tokens = std::max(c.max_tokens, g.tokens);
    c.vocab_size = d_.vocab_size;
    c.weights_bytes = d_.weights_bytes;
    c.bytes_per_token = d_.bytes_per_token;
    c.ops_per_token = d_.ops_per_token;
  }

  Result<StaticSession> OpenGraph(const std::shared_ptr<Runtime>& runtime, const StaticGraph& graph) {
    SLM_ASSIGN_OR_RETURN(OpenSession session, MakeSession(runtime, graph.path, graph.choice, {.profile = "", .config = {}}));
    if (const std::string device = DeviceOf(session); device != "cpu") capabilities_.device = device;
    return StaticSession::Create(std::move(session), d_, graph, *cache_);
  }

  // Every graph once; then the prefix, which no run may touch.
  Status WarmUp() {
    for (StaticSession& s : sessions_) {
      const int32_t token = 0;
      if (const Status ran = s.Run({&token, 1}, 0, *cache_); !ran.ok()) return ran;
      capabilities_.activations_bytes += s.bytes() + ArenaBytes(s.session());
    }
    capabilities_.activations_bytes += static_cast<int64_t>(joined_.size());
    for (int layer = 0; layer < d_.n_layers && prefix() > 0; ++layer) {
      const auto at = static_cast<size_t>(layer);
      cache_->Store(layer, 0, prefix(), prefix(), d_.prefix_keys[at].data(), d_.prefix_values[at].data());
    }
    return Ok();
  }

  Status CheckPrefix(std::span<const int32_t> tokens, LogitsOf which) const {
    const auto first = static_cast<size_t>(cursor_.used()), n = d_.prefix_tokens.size();
    for (size_t i = first; i < n && i - first < tokens.size(); ++i)
      if (tokens[i - first] != d_.prefix_tokens[i])
        return Error(
            Code::kInvalidArgument,
            fmt::format("token {} of the sequence is {}, and these graphs need {} there", i, tokens[i - first], d_.prefix_tokens[i]),
            "begin with the model's begin token, whose keys and values are part of the folder (slm eval: --bos always)");
    const bool wanted = first < n && (which == LogitsOf::kAllTokens || first + tokens.size() <= n);
    if (!wanted || !d_.prefix_logits.empty()) return Ok();
    return Error(Code::kUnsupported, "the folder does not say what follows its first token alone",
                 "export the folder again, or give a longer text");
  }

  // The smallest graph that takes n tokens; n is at most that of the largest.
  StaticSession& GraphFor(int n) {
    StaticSession* best = nullptr;
    for (StaticSession& s : sessions_)
      if (s.tokens() >= n && (!best || s.tokens() < best->tokens())) best = &s;
    return *best;
  }

  Result<Logits> Evaluate(std::span<const int32_t> tokens, int first, LogitsOf which) {
    const int known = std::clamp(prefix() - first, 0, static_cast<int>(tokens.size()));
    const std::span<const int32_t> rest = tokens.subspan(static_cast<size_t>(known));
    const auto vocab = static_cast<size_t>(d_.vocab_size);
    const float* computed = nullptr;
    if (!rest.empty()) {
      StaticSession& s = GraphFor(static_cast<int>(rest.size()));
      SLM_RETURN_IF_ERROR(s.Run(rest, first + known, *cache_));
      computed = s.logits();
    }
    Logits out{nullptr, which == LogitsOf::kAllTokens ? static_cast<int>(tokens.size()) : 1, d_.vocab_size, d_.vocab_size};
    if (which == LogitsOf::kLastToken) {
      out.data =
          rest.empty() ? d_.prefix_logits.data() + (static_cast<size_t>(first + known) - 1) * vocab : computed + (rest.size() - 1) * vocab;
    } else if (known == 0) {
      out.data = computed;
    } else {
      auto* rows = joined_.as<float>();
      const size_t head = static_cast<size_t>(known) * vocab;
      std::copy_n(d_.prefix_logits.data() + static_cast<size_t>(first) * vocab, head, rows);
      if (computed) std::copy_n(computed, rest.size() * vocab, rows + head);
      out.data = rows;
    }
    SLM_RETURN_IF_ERROR(CheckLogits({out.data, static_cast<size_t>(out.n_rows) * vocab}));
    return out;
  }

  const StaticDecoder d_;
  const LogitsOf at_load_;
  Capabilities capabilities_;
  std::optional<StaticCache> cache_;
  std::vector<StaticSession> sessions_;
  Buffer joined_;  // rows of the prefix and of a graph
  kv::Cursor cursor_;
};

Status CheckDecoder(const StaticDecoder& d) {
  const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what, "check the description of the graphs"); };
  if (d.graphs.empty()) return bad("no graph");
  for (const StaticGraph& g : d.graphs)
    if (g.tokens < 1 || g.tokens > d.context) return bad(fmt::format("{}: {} tokens, context {}", g.path, g.tokens, d.context));
  for (const StaticInput& i : d.inputs) {
    if (i.rows == StaticInput::Rows::kMask) continue;
    const int64_t rows = i.rows == StaticInput::Rows::kToken ? d.vocab_size : d.context;
    if (i.table.row_bytes < BytesOf(d.input_type) || i.table.row_bytes % BytesOf(d.input_type) != 0 || i.table.rows() < rows)
      return bad(fmt::format("the table of {} has not {} rows", i.name, rows));
  }
  const auto p = static_cast<int64_t>(d.prefix_tokens.size());
  if (p >= d.context) return bad("the prefix fills the context");
  const auto layers = static_cast<size_t>(p > 0 ? d.n_layers : 0);
  if (d.prefix_keys.size() < layers || d.prefix_values.size() < layers) return bad("the prefix has not keys and values of every layer");
  for (size_t i = 0; i < layers; ++i) {
    const auto bytes = static_cast<size_t>(p * d.n_kv_heads * d.head_dim * BytesOf(d.cache_type));
    if (d.prefix_keys[i].size() != bytes || d.prefix_values[i].size() != bytes) return bad("the prefix has keys or values of another size");
  }
  if (!d.prefix_logits.empty() && d.prefix_logits.size() != static_cast<size_t>(p) * static_cast<size_t>(d.vocab_size))
    return bad("the prefix has logits of another size");
  return Ok();
}

}  // namespace

Result<OrtBackend> CreateStaticBackend(const std::shared_ptr<Runtime>& runtime, const StaticDecoder& d, const OrtOptions& o) {
  SLM_RETURN_IF_ERROR(CheckDecoder(d));
  OrtBackend out;
  out.kv_type = NameOf(d.cache_type);
  auto backend = std::make_unique<StaticBackend>(d, o);
  SLM_RETURN_IF_ERROR(backend->Open(runtime, o, out.notes));
  out.backend = std::move(backend);
  return out;
}

}  // namespace slm::backend::ort
