// The one decoder builder: a ModelConfig becomes the plain, unfused graph. It reads like a forward pass; which features a model
// has is in the config's flags (and in which tensors the file carries), never in its name.
//
// Decoder-only transformer with pre-norms (Llama family, arXiv 2302.13971), grouped-query attention (arXiv 2305.13245),
// rotary embedding (arXiv 2104.09864), gated MLP (arXiv 2002.05202). Sequence axis T only: one sequence a call.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/build/rope_table.h"
#include "graph/build/weights.h"
#include "graph/graph.h"

namespace slm::graph {
namespace {

using model::ModelConfig;
using model::Role;

// Rows of the rotary tables: more than any released model by far, and small enough that a wrong number cannot exhaust memory.
constexpr int kMaxRopePositions = 1 << 22;

struct Rope {
  ValueId cos = kNoValue, sin = kNoValue;
  int rotary_dim = 0;
  bool interleaved = false;
};

class DecoderBuilder {
 public:
  DecoderBuilder(std::shared_ptr<const model::Model> model, int max_context)
      : model_(*model), c_(model->config), max_context_(max_context), weights_(model_, g_) {
    g_.model = std::move(model);
  }

  Result<Graph> Build() {
    SLM_RETURN_IF_ERROR(CheckConfig());
    g_.input_ids = Input("input_ids");
    g_.input_positions = Input("position_ids");
    SLM_ASSIGN_OR_RETURN(global_, Tables("rope", c_.rope));
    const bool has_local = std::find(c_.is_local.begin(), c_.is_local.end(), 1) != c_.is_local.end();
    // A reader leaves rope_local empty when local layers rotate like the others (Mistral).
    if (has_local && c_.rope_local.rotary_dim != 0) {
      SLM_ASSIGN_OR_RETURN(local_, Tables("rope_local", c_.rope_local));
    } else {
      local_ = global_;
    }
    g_.output_logits = Forward();
    SLM_RETURN_IF_ERROR(weights_.status());
    SLM_RETURN_IF_ERROR(InferShapes(g_));
    SLM_RETURN_IF_ERROR(Verify(g_));
    return std::move(g_);
  }

 private:
  ValueId Forward() {
    const ValueId table = weights_.Whole(Role::kEmbedding, 0, {c_.vocab_size, c_.d_model});
    ValueId x = Emit(Op::kGather, "embed_tokens", {table, g_.input_ids});
    x = Scaled("embed_scale", x, c_.embedding_scale);
    for (layer_ = 0; layer_ < c_.n_layers; ++layer_) {
      x = Residual("attn_add", x, AttentionBranch(x));
      x = Residual("mlp_add", x, MlpBranch(x));
    }
    layer_ = -1;
    x = Norm("final_norm", x, Role::kFinalNorm, c_.d_model);
    const ValueId head = c_.tied_head ? table : weights_.Whole(Role::kHead, 0, {c_.vocab_size, c_.d_model});
    ValueId logits = Emit(Op::kGemm, "head", {x, head}, {{AttrKey::kTransB, int64_t{1}}});
    logits = Scaled("logit_scale", logits, c_.logit_scale);
    return Softcapped(logits);
  }

  ValueId AttentionBranch(ValueId x) {
    const int l = layer_;
    const int64_t hq = c_.n_heads, hkv = c_.n_kv_heads, d = c_.head_dim, q_rows = hq * d, kv_rows = hkv * d;
    const bool local = Flag(c_.is_local, l);
    ValueId h = Norm("attn_norm", x, Role::kAttnNorm, c_.d_model);
    ValueId q, k, v;
    if (weights_.Has(Role::kQkv, l)) {
      const RowRange rq{0, q_rows}, rk{q_rows, q_rows + kv_rows}, rv{q_rows + kv_rows, q_rows + 2 * kv_rows};
      const FusedRoles fused{Role::kQkv, Role::kQkvBias, q_rows + 2 * kv_rows, c_.qkv_bias};
      q = FusedLinear("q_proj", h, fused, rq);
      k = FusedLinear("k_proj", h, fused, rk);
      v = FusedLinear("v_proj", h, fused, rv);
    } else {
      q = Linear("q_proj", h, {Role::kQ, Role::kQBias, q_rows, c_.d_model, c_.qkv_bias});
      k = Linear("k_proj", h, {Role::kK, Role::kKBias, kv_rows, c_.d_model, c_.qkv_bias});
      v = Linear("v_proj", h, {Role::kV, Role::kVBias, kv_rows, c_.d_model, c_.qkv_bias});
    }
    if (c_.qk_norm || weights_.Has(Role::kQNorm, l)) {
      q = HeadNorm("q", q, Role::kQNorm, hq);
      k = HeadNorm("k", k, Role::kKNorm, hkv);
    }
    if (!Flag(c_.no_rope, l)) {
      const Rope& rope = local ? local_ : global_;
      q = Rotate("q_rope", q, rope, hq);
      k = Rotate("k_rope", k, rope, hkv);
    }
    h = Attention(q, k, v, local ? c_.sliding_window : 0);
    h = Linear("o_proj", h, {Role::kO, Role::kOBias, c_.d_model, q_rows, c_.o_bias});
    if (c_.post_norms || weights_.Has(Role::kAttnPostNorm, l)) h = Norm("attn_post_norm", h, Role::kAttnPostNorm, c_.d_model);
    return h;
  }

  ValueId MlpBranch(ValueId x) {
    const int64_t f = c_.d_ff, e = c_.d_model;
    ValueId h = Norm("mlp_norm", x, Role::kFfnNorm, e);
    ValueId gate, up;
    if (weights_.Has(Role::kGateUp, layer_)) {
      const FusedRoles fused{Role::kGateUp, Role::kCount, 2 * f, false};
      gate = FusedLinear("gate_proj", h, fused, {0, f});
      up = FusedLinear("up_proj", h, fused, {f, 2 * f});
    } else {
      gate = Linear("gate_proj", h, {Role::kGate, Role::kGateBias, f, e, c_.mlp_bias});
      up = Linear("up_proj", h, {Role::kUp, Role::kUpBias, f, e, c_.mlp_bias});
    }
    h = Emit(Op::kMul, Name("gate_mul"), {Activated(gate), up});
    h = Linear("down_proj", h, {Role::kDown, Role::kDownBias, e, f, c_.mlp_bias});
    if (c_.post_norms || weights_.Has(Role::kFfnPostNorm, layer_)) h = Norm("mlp_post_norm", h, Role::kFfnPostNorm, e);
    return h;
  }

  ValueId Attention(ValueId q, ValueId k, ValueId v, int window) {
    const float scale = c_.attention_scale != 0 ? c_.attention_scale : static_cast<float>(1.0 / std::sqrt(double(c_.head_dim)));
    std::vector<ValueId> inputs(kGqaInputCount, kNoValue);
    inputs[kGqaQuery] = q;
    inputs[kGqaKey] = k;
    inputs[kGqaValue] = v;
    return Emit(Op::kGroupQueryAttention, Name("attn"), std::move(inputs),
                {{AttrKey::kLayer, int64_t{layer_}},
                 {AttrKey::kNumHeads, int64_t{c_.n_heads}},
                 {AttrKey::kKvNumHeads, int64_t{c_.n_kv_heads}},
                 {AttrKey::kScale, scale},
                 {AttrKey::kSoftcap, c_.attention_softcap},
                 {AttrKey::kLocalWindow, window > 0 ? int64_t{window} : int64_t{-1}},
                 {AttrKey::kDoRotary, int64_t{0}}});
  }

  struct LinearRoles {
    Role weight, bias;
    int64_t n, k;
    bool must_have_bias;
  };
  ValueId Linear(const char* name, ValueId x, const LinearRoles& r) {
    std::vector<ValueId> in{x, weights_.Whole(r.weight, layer_, {r.n, r.k})};
    if (r.must_have_bias || weights_.Has(r.bias, layer_)) in.push_back(weights_.Whole(r.bias, layer_, {r.n}));
    return Emit(Op::kGemm, Name(name), std::move(in), {{AttrKey::kTransB, int64_t{1}}});
  }

  struct FusedRoles {
    Role weight, bias;  // bias kCount: none
    int64_t total_rows;
    bool must_have_bias;
  };
  ValueId FusedLinear(const char* name, ValueId x, const FusedRoles& r, RowRange rows) {
    std::vector<ValueId> in{x, weights_.Rows(r.weight, layer_, {r.total_rows, c_.d_model}, rows, name)};
    if (r.bias != Role::kCount && (r.must_have_bias || weights_.Has(r.bias, layer_)))
      in.push_back(weights_.Rows(r.bias, layer_, {r.total_rows}, rows, name));
    return Emit(Op::kGemm, Name(name), std::move(in), {{AttrKey::kTransB, int64_t{1}}});
  }

  ValueId Norm(const char* name, ValueId x, Role role, int64_t n) {
    ValueId w = weights_.Whole(role, layer_, {n});
    if (c_.norm_offset != 0) {
      // Gemma's files store w - 1: the reference computes x * (1 + w). Folding makes it one vector again.
      if (norm_offset_ == kNoValue) norm_offset_ = weights_.Computed("norm_offset", {1}, {c_.norm_offset});
      w = Emit(Op::kAdd, Name(name) + ".weight", {w, norm_offset_});
    }
    return Emit(Op::kRmsNorm, Name(name), {x, w}, {{AttrKey::kEpsilon, c_.rms_eps}});
  }

  // RMSNorm over the D values of each head: a view [T, H, D] and back.
  ValueId HeadNorm(const std::string& q_or_k, ValueId x, Role role, int64_t heads) {
    x = Reshaped(q_or_k + "_heads", x, {kT, heads, c_.head_dim});
    x = Norm((q_or_k + "_norm").c_str(), x, role, c_.head_dim);
    return Reshaped(q_or_k + "_flat", x, {kT, heads * c_.head_dim});
  }

  ValueId Rotate(const char* name, ValueId x, const Rope& rope, int64_t heads) {
    return Emit(
        Op::kRotary, Name(name), {x, rope.cos, rope.sin, g_.input_positions},
        {{AttrKey::kNumHeads, heads}, {AttrKey::kRotaryDim, int64_t{rope.rotary_dim}}, {AttrKey::kInterleaved, int64_t{rope.interleaved}}});
  }

  ValueId Activated(ValueId x) {
    switch (c_.activation) {
      case model::Activation::kSilu: return Emit(Op::kSwish, Name("act"), {x});
      case model::Activation::kGeluTanh: return Emit(Op::kGelu, Name("act"), {x}, {{AttrKey::kApproximate, std::string("tanh")}});
      case model::Activation::kGeluErf: return Emit(Op::kGelu, Name("act"), {x}, {{AttrKey::kApproximate, std::string("none")}});
    }
    SLM_ASSERT(false);
    return kNoValue;
  }

  ValueId Residual(const std::string& name, ValueId x, ValueId branch) {
    return Emit(Op::kAdd, Name(name), {x, Scaled(name + "_scale", branch, c_.residual_scale)});
  }

  ValueId Scaled(const std::string& name, ValueId x, float factor) {
    if (factor == 1) return x;
    return Emit(Op::kMul, Name(name), {x, weights_.Computed(Name(name) + ".value", {1}, {factor})});
  }

  ValueId Softcapped(ValueId logits) {
    if (c_.logit_softcap == 0) return logits;
    const ValueId cap = weights_.Computed("logit_softcap.value", {1}, {c_.logit_softcap});
    logits = Emit(Op::kDiv, "logit_softcap.div", {logits, cap});
    logits = Emit(Op::kTanh, "logit_softcap.tanh", {logits});
    return Emit(Op::kMul, "logit_softcap.mul", {logits, cap});
  }

  ValueId Reshaped(const std::string& name, ValueId x, Shape target) {
    const ValueId out = Emit(Op::kReshape, Name(name), {x});
    g_.values[out].shape = std::move(target);
    return out;
  }

  ValueId Emit(Op op, const std::string& name, std::vector<ValueId> inputs, std::vector<Attr> attrs = {}) {
    const ValueId out = g_.AddValue({name, {}, ElementType::kF32, nullptr});
    g_.nodes.push_back({op, name, std::move(inputs), {out}, std::move(attrs), layer_});
    return out;
  }

  ValueId Input(const char* name) { return g_.AddValue({name, {kT}, ElementType::kI64, nullptr}); }

  std::string Name(const std::string& name) const { return layer_ < 0 ? name : fmt::format("layers.{}.{}", layer_, name); }

  static bool Flag(const std::vector<uint8_t>& per_layer, int l) { return !per_layer.empty() && per_layer[l] != 0; }

  Result<Rope> Tables(const std::string& name, const model::RopeConfig& rope) {
    if (rope.rotary_dim > c_.head_dim)
      return Error(Code::kCorrupt, fmt::format("{}: rotary dimension {} exceeds the head ({})", model_.path, rope.rotary_dim, c_.head_dim));
    auto table = BuildRopeTable(rope, max_context_);
    if (!table.ok()) return table.error().At(model_.path);
    const Shape shape{max_context_, rope.rotary_dim / 2};
    return Rope{weights_.Computed(name + ".cos", shape, std::move(table.value().cos)),
                weights_.Computed(name + ".sin", shape, std::move(table.value().sin)), rope.rotary_dim, rope.interleaved};
  }

  Status CheckConfig() const {
    if (max_context_ <= 0 || max_context_ > kMaxRopePositions)
      return Error(Code::kInvalidArgument, fmt::format("context of {} tokens", max_context_),
                   fmt::format("give 1 to {}", kMaxRopePositions));
    auto corrupt = [&](std::string what) {
      return Error(Code::kCorrupt, fmt::format("{}: {}", model_.path, what), "the model's configuration is damaged");
    };
    for (auto [name, n] : {std::pair{"vocab_size", c_.vocab_size},
                           {"d_model", c_.d_model},
                           {"n_layers", c_.n_layers},
                           {"n_heads", c_.n_heads},
                           {"n_kv_heads", c_.n_kv_heads},
                           {"head_dim", c_.head_dim},
                           {"d_ff", c_.d_ff}})
      if (n <= 0) return corrupt(fmt::format("{} is {}", name, n));
    if (c_.n_heads % c_.n_kv_heads != 0) return corrupt(fmt::format("{} query heads for {} KV heads", c_.n_heads, c_.n_kv_heads));
    for (const auto* list : {&c_.is_local, &c_.no_rope})
      if (!list->empty() && list->size() != static_cast<size_t>(c_.n_layers))
        return corrupt("a per-layer list has another length than n_layers");
    return Ok();
  }

  Graph g_;
  const model::Model& model_;
  const ModelConfig& c_;
  int max_context_;
  Weights weights_;
  Rope global_, local_;
  ValueId norm_offset_ = kNoValue;
  int layer_ = -1;
};

}  // namespace

Result<Graph> BuildDecoder(std::shared_ptr<const model::Model> model, const BuildOptions& options) {
  SLM_ASSERT(model != nullptr);
  return DecoderBuilder(std::move(model), options.max_context).Build();
}

}  // namespace slm::graph
