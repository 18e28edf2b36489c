// See keys.h. Key names: ggml's docs/gguf.md and the gguf package.
#include "model/gguf/folder/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/architectures.h"
#include "model/quoted.h"
#include "model/roles.h"

namespace slm::model::gguf {
namespace {

Error Unsupported(const std::string& what) { return Error(Code::kUnsupported, what + " cannot be said in a GGUF file", "keep the folder"); }

std::string NameOf(const ModelConfig& c, const Architecture& a) {
  return c.is_local.empty() && !a.gguf_writes.empty() ? std::string(a.gguf_writes) : c.architecture;
}

class Keys {
 public:
  Keys(const ModelConfig& c, const std::string& name, FileWriter* out) : c_(c), out_(*out), prefix_(name + ".") {}

  Status Write(const Architecture& arch) {
    Int("context_length", c_.max_context);
    Int("embedding_length", c_.d_model);
    Int("block_count", c_.n_layers);
    Int("feed_forward_length", c_.d_ff);
    Int("attention.head_count", c_.n_heads);
    Int("attention.head_count_kv", c_.n_kv_heads);
    Int("attention.key_length", c_.head_dim);
    Int("attention.value_length", c_.head_dim);
    Int("vocab_size", c_.vocab_size);
    Float("attention.layer_norm_rms_epsilon", c_.rms_eps);
    SLM_RETURN_IF_ERROR(Rope(arch));
    SLM_RETURN_IF_ERROR(Layers(arch));
    Scales(arch);
    return Ok();
  }

 private:
  void Int(const char* name, int v) { out_.U32(prefix_ + name, static_cast<uint32_t>(v)); }
  void Float(const char* name, double v) { out_.F32(prefix_ + name, static_cast<float>(v)); }

  Status Rope(const Architecture& arch) {
    const RopeConfig& r = c_.rope;
    if (arch.gguf_rope == GgufRope::kPairs && r.rotary_dim != c_.head_dim) return Unsupported("partial rotary embedding");
    Int("rope.dimension_count", r.rotary_dim);
    Float("rope.freq_base", r.theta);
    if (r.scaling == RopeScaling::kLinear) {
      out_.Text(prefix_ + "rope.scaling.type", "linear");
      Float("rope.scaling.factor", r.factor);
    }
    if (r.scaling == RopeScaling::kLongRope) {
      Int("rope.scaling.original_context_length", r.original_context);
      Float("rope.scaling.attn_factor", r.attention_factor);
    }
    if (c_.is_local.empty()) return Ok();
    const bool same = c_.rope_local.scaling == r.scaling && c_.rope_local.factor == r.factor;
    if (arch.local_theta == 0 ? !same : c_.rope_local.scaling != RopeScaling::kNone) return Unsupported("rope scaling of local layers");
    if (c_.rope_local.theta != (arch.local_theta == 0 ? r.theta : arch.local_theta)) Float("rope.freq_base_swa", c_.rope_local.theta);
    return Ok();
  }

  // Which layers are local, and which do not rotate: as a key where it is not the architecture's own rule.
  Status Layers(const Architecture& arch) {
    ModelConfig own;
    own.n_layers = c_.n_layers;
    own.sliding_window = c_.sliding_window;
    MarkLocalLayers(arch, 0, &own);
    MarkNoRopeLayers(arch.no_rope_step, &own);
    if (std::find(own.no_rope.begin(), own.no_rope.end(), 1) == own.no_rope.end()) own.no_rope.clear();
    if (own.no_rope != c_.no_rope) return Unsupported("its own choice of layers without rotary embedding");
    if (c_.is_local.empty()) return Ok();
    Int("attention.sliding_window", c_.sliding_window);
    if (own.is_local != c_.is_local) out_.Bools(prefix_ + "attention.sliding_window_pattern", c_.is_local);
    return Ok();
  }

  void Scales(const Architecture& arch) {
    if (c_.attention_softcap != 0) Float("attn_logit_softcapping", c_.attention_softcap);
    if (c_.logit_softcap != 0) Float("final_logit_softcapping", c_.logit_softcap);
    if (c_.attention_scale != 0) Float("attention.scale", c_.attention_scale);
    if (arch.multipliers == Feature::kNo) return;
    Float("logit_scale", 1 / c_.logit_scale);
    Float("residual_scale", c_.residual_scale);
    Float("embedding_scale", c_.embedding_scale);
  }

  const ModelConfig& c_;
  FileWriter& out_;
  const std::string prefix_;
};

// The second id that ends a turn, when the config names more than the vocabulary's own.
int OtherEnd(const ModelConfig& c, int eos) {
  const auto other = std::find_if(c.eos_ids.begin(), c.eos_ids.end(), [&](int32_t id) { return id != eos; });
  return other == c.eos_ids.end() ? -1 : *other;
}

void DeclareVocabulary(const Model& m, const TokenizerSource& v, FileWriter* out) {
  out->Text("tokenizer.ggml.model", v.ggml_model);
  out->Text("tokenizer.ggml.pre", v.ggml_pre.empty() ? "default" : v.ggml_pre);
  out->Texts("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) out->Floats("tokenizer.ggml.scores", v.scores);
  out->Int32s("tokenizer.ggml.token_type", v.token_types);
  if (!v.merges.empty()) out->Texts("tokenizer.ggml.merges", v.merges);
  const int bos = v.bos >= 0 || m.config.bos_ids.empty() ? v.bos : m.config.bos_ids[0];
  const int eos = v.eos >= 0 || m.config.eos_ids.empty() ? v.eos : m.config.eos_ids[0];
  const struct {
    const char* name;
    int id;
  } ids[] = {{"bos", bos}, {"eos", eos}, {"unknown", v.unk}, {"padding", v.pad}, {"eot", OtherEnd(m.config, eos)}};
  for (const auto& [name, id] : ids)
    if (id >= 0) out->U32(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(id));
  out->Bool("tokenizer.ggml.add_bos_token", v.add_bos == 1);
  out->Bool("tokenizer.ggml.add_eos_token", v.add_eos == 1);
  if (v.add_space_prefix >= 0) out->Bool("tokenizer.ggml.add_space_prefix", v.add_space_prefix == 1);
  if (!m.tokenizer.chat_template.empty()) out->Text("tokenizer.chat_template", m.tokenizer.chat_template);
  std::vector<std::string> names;
  for (const auto& [name, text] : m.tokenizer.named_templates) {
    out->Text("tokenizer.chat_template." + name, text);
    names.push_back(name);
  }
  if (!names.empty()) out->Texts("tokenizer.chat_templates", names);
}

bool IsNorm(Role role) {
  switch (role) {
    case Role::kFinalNorm:
    case Role::kAttnNorm:
    case Role::kAttnPostNorm:
    case Role::kFfnNorm:
    case Role::kFfnPostNorm:
    case Role::kQNorm:
    case Role::kKNorm: return true;
    default: return false;
  }
}

// What each frequency of Llama 3's rule is divided by.
std::vector<float> Llama3Factors(const RopeConfig& r) {
  std::vector<float> factors;
  for (int i = 0; i < r.rotary_dim / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(r.theta, 2.0 * i / r.rotary_dim);
    const double turns = r.original_context / wavelength;
    const double blend = std::clamp((turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - blend) / r.factor + blend)));
  }
  return factors;
}

}  // namespace

Status DeclareFolder(const Model& m, const TokenizerSource& vocabulary, FileWriter* out) {
  const Architecture* arch = FindByGgufName(m.config.architecture);
  if (!arch) return UnknownArchitecture(m.config.architecture);
  if (m.config.vocab_size != static_cast<int>(vocabulary.tokens.size()))
    return Error(Code::kCorrupt,
                 fmt::format("{} tokens in the vocabulary, {} rows in the embedding", vocabulary.tokens.size(), m.config.vocab_size),
                 "tokenizer and weights do not belong together: fetch the model again");
  const std::string name = NameOf(m.config, *arch);
  out->Text("general.architecture", name);
  out->Text("general.type", "model");
  if (!m.config.name.empty()) out->Text("general.name", m.config.name);
  SLM_RETURN_IF_ERROR(Keys(m.config, name, out).Write(*arch));
  DeclareVocabulary(m, vocabulary, out);
  return Ok();
}

FolderTensor FolderTensorOf(Role role, int layer, const ModelConfig& c) {
  FolderTensor t{.name = GgufName(role, layer, c), .pair_heads = 0, .add = IsNorm(role) ? c.norm_offset : 0};
  const Architecture* arch = FindByGgufName(c.architecture);
  if (!arch || arch->gguf_rope != GgufRope::kPairs) return t;
  if (role == Role::kQ || role == Role::kQBias) t.pair_heads = c.n_heads;
  if (role == Role::kK || role == Role::kKBias) t.pair_heads = c.n_kv_heads;
  return t;
}

int64_t FolderRow(const FolderTensor& t, int64_t n_rows, int64_t row) {
  if (t.pair_heads == 0) return row;
  const int64_t width = n_rows / t.pair_heads, in_head = row % width;
  return row - in_head + in_head / 2 + in_head % 2 * (width / 2);
}

std::vector<ComputedTensor> ComputedTensors(const ModelConfig& c) {
  std::vector<ComputedTensor> out;
  if (c.rope.scaling == RopeScaling::kLlama3) out.push_back({"rope_freqs.weight", Llama3Factors(c.rope)});
  if (!c.rope.long_factors.empty()) out.push_back({"rope_factors_long.weight", c.rope.long_factors});
  if (!c.rope.short_factors.empty()) out.push_back({"rope_factors_short.weight", c.rope.short_factors});
  return out;
}

}  // namespace slm::model::gguf
