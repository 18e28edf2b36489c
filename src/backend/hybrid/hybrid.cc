// See hybrid.h.
#include "backend/hybrid/hybrid.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "kv/kv.h"

namespace slm::backend {
namespace {

class Hybrid final : public Backend {
 public:
  Hybrid(std::unique_ptr<Backend> prefill, std::unique_ptr<Backend> decode)
      : prefill_{std::move(prefill), nullptr}, decode_{std::move(decode), nullptr} {
    prefill_.port = prefill_.backend->kv_port();
    decode_.port = decode_.backend->kv_port();
    const Capabilities &p = prefill_.backend->capabilities(), &d = decode_.backend->capabilities();
    capabilities_ = d;
    capabilities_.backend = p.backend + "+" + d.backend;
    if (p.device != d.device) capabilities_.device = p.device + "+" + d.device;
    if (p.isa != d.isa) capabilities_.isa = p.isa + " + " + d.isa;
    capabilities_.max_context = std::min(p.max_context, d.max_context);
    cursor_ = kv::Cursor(capabilities_.max_context);
    capabilities_.max_tokens = p.max_tokens;
    capabilities_.weights_bytes += p.weights_bytes;
    capabilities_.kv_bytes += p.kv_bytes;
    const KvShape s = decode_.port->shape();
    const auto values = static_cast<size_t>(s.n_kv_heads) * static_cast<size_t>(s.head_dim) * kSlotsAtOnce;
    keys_.resize(values);
    values_.resize(values);
    capabilities_.activations_bytes += p.activations_bytes + static_cast<int64_t>(2 * values * sizeof(float));
  }

  Result<Logits> Forward(std::span<const int32_t> tokens, LogitsOf which) override {
    SLM_ASSIGN_OR_RETURN(const int64_t first, cursor_.Advance(static_cast<int64_t>(tokens.size())));
    // One token is decoding, but the rows of all tokens are only promised by the first.
    const bool decodes = tokens.size() == 1 && which == LogitsOf::kLastToken;
    auto logits = decodes ? Evaluate(prefill_, decode_, static_cast<int>(first), tokens, which)
                          : Evaluate(decode_, prefill_, static_cast<int>(first), tokens, which);
    if (!logits.ok()) SLM_RETURN_IF_ERROR(cursor_.Rewind(first));
    return logits;
  }

  Status Rewind(int position) override {
    SLM_RETURN_IF_ERROR(cursor_.Rewind(position));
    for (Side* s : {&prefill_, &decode_})
      if (s->backend->used() > position) SLM_RETURN_IF_ERROR(s->backend->Rewind(position));
    return Ok();
  }
  int used() const override { return static_cast<int>(cursor_.used()); }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<PlacementRow> Placement() const override {
    std::vector<PlacementRow> rows = prefill_.backend->Placement();
    for (PlacementRow& r : rows) r.reason = r.reason.empty() ? "prefill" : "prefill: " + r.reason;
    for (PlacementRow& r : decode_.backend->Placement()) {
      r.reason = r.reason.empty() ? "decode" : "decode: " + r.reason;
      rows.push_back(std::move(r));
    }
    return rows;
  }
  const HandOver* hand_over() const { return &hand_over_; }

 private:
  static constexpr int kSlotsAtOnce = 64;
  struct Side {
    std::unique_ptr<Backend> backend;
    KvPort* port;
  };

  Result<Logits> Evaluate(const Side& from, Side& to, int first, std::span<const int32_t> tokens, LogitsOf which) {
    SLM_RETURN_IF_ERROR(Pass(from, to, first));
    return to.backend->Forward(tokens, which);
  }

  // Copies the slots of [0, end) that `to` lacks.
  Status Pass(const Side& from, Side& to, int end) {
    const int begin = to.backend->used();
    if (begin == end) return Ok();
    const int64_t start = NowNs();
    const KvShape shape = to.port->shape();
    for (int layer = 0; layer < shape.n_layers; ++layer)
      for (int at = begin; at < end; at += kSlotsAtOnce) {
        const int n = std::min(kSlotsAtOnce, end - at);
        from.port->Read(layer, at, n, keys_.data(), values_.data());
        to.port->Write(layer, at, n, keys_.data(), values_.data());
      }
    SLM_RETURN_IF_ERROR(to.port->Take(end));
    const int64_t tokens = end - begin;
    ++hand_over_.count;
    hand_over_.tokens += tokens;
    hand_over_.bytes += tokens * shape.n_layers * shape.n_kv_heads * shape.head_dim * 2 * static_cast<int64_t>(sizeof(float));
    hand_over_.ns += NowNs() - start;
    return Ok();
  }

  Side prefill_, decode_;
  Capabilities capabilities_;
  kv::Cursor cursor_;
  std::vector<float> keys_, values_;  // [Hkv][slots][D] of one layer
  HandOver hand_over_;
};

std::string Shown(const KvShape& s) { return fmt::format("{} layers of {} heads of {}", s.n_layers, s.n_kv_heads, s.head_dim); }

}  // namespace

Result<HybridBackend> CreateHybridBackend(std::unique_ptr<Backend> prefill, std::unique_ptr<Backend> decode) {
  const auto refuse = [](std::string what) {
    return Error(Code::kUnsupported, std::move(what),
                 "give two forms of one model; a cache can be handed over when it is f16 or f32 in the CPU's memory and attention itself "
                 "turns its keys, and from static graphs");
  };
  const KvPort *p = prefill->kv_port(), *d = decode->kv_port();
  if (!p || !d)
    return refuse(fmt::format("the KV cache of the {} side cannot be handed over ({})", p ? "decode" : "prefill",
                              (p ? decode : prefill)->capabilities().backend));
  if (p->shape() != d->shape())
    return refuse(fmt::format("a cache of {} for prefill, one of {} for decode", Shown(p->shape()), Shown(d->shape())));
  const int vp = prefill->capabilities().vocab_size, vd = decode->capabilities().vocab_size;
  if (vp != vd) return refuse(fmt::format("a vocabulary of {} for prefill, one of {} for decode", vp, vd));
  auto made = std::make_unique<Hybrid>(std::move(prefill), std::move(decode));
  HybridBackend out;
  out.hand_over = made->hand_over();
  out.backend = std::move(made);
  return out;
}

}  // namespace slm::backend
