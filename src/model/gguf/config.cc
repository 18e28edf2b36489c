// See config.h. Every key is read through typed look-ups and then bounded by CheckConfig.
#include "model/gguf/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/architectures.h"
#include "model/quoted.h"

namespace slm::model::gguf {
namespace {

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), "convert the model again with a current converter"); }
Error Unsupported(std::string what) { return Error(Code::kUnsupported, std::move(what), "use a model without it"); }

// Keys of one architecture ("llama." + name).
class ArchKeys {
 public:
  ArchKeys(const File& file, std::string_view arch) : file_(file), prefix_(std::string(arch) + ".") {}
  bool Has(const char* name) const { return file_.Find(prefix_ + name) != nullptr; }
  std::string Full(const char* name) const { return prefix_ + name; }

  // An integer that fits an int; arrays are taken when all layers have the same value. `out` keeps its value when absent.
  Status Int(const char* name, int* out) const {
    const std::string key = Full(name);
    const Value* v = file_.Find(key);
    if (!v) return Ok();
    int64_t n = 0;
    if (v->type == ValueType::kArray) {
      SLM_ASSIGN_OR_RETURN(const std::vector<int64_t> items, IntegerItems({key, *v}));
      if (items.empty()) return Corrupt("key " + Quoted(key) + " is an empty list");
      if (std::adjacent_find(items.begin(), items.end(), std::not_equal_to<>()) != items.end())
        return Unsupported("key " + Quoted(key) + ": layers of different sizes");
      n = items[0];
    } else {
      SLM_ASSIGN_OR_RETURN(const auto one, GetInteger(file_, key));
      n = *one;
    }
    if (n < 0 || n > INT32_MAX) return Corrupt(fmt::format("key {} is {}", Quoted(key), n));
    *out = static_cast<int>(n);
    return Ok();
  }
  Status RequiredInt(const char* name, int* out) const {
    if (!Has(name)) return Corrupt("key " + Quoted(Full(name)) + " is missing");
    return Int(name, out);
  }
  template <class F>
  Status Float(const char* name, F* out) const {
    SLM_ASSIGN_OR_RETURN(const auto x, GetNumber(file_, Full(name)));
    if (x) *out = static_cast<F>(*x);
    return Ok();
  }
  Result<std::string> Text(const char* name) const {
    SLM_ASSIGN_OR_RETURN(const auto s, GetText(file_, Full(name)));
    return std::string(s.value_or(""));
  }

 private:
  const File& file_;
  std::string prefix_;
};

const Tensor* FindTensor(const File& file, std::string_view name) {
  for (const Tensor& t : file.tensors)
    if (t.name == name) return &t;
  return nullptr;
}

// Keys that change the result in a way this build does not compute. Zero or false means "not used".
Status RefuseUnsupportedKeys(const File& file, const ArchKeys& keys, const Architecture& arch) {
  for (const char* name :
       {"expert_count", "attention.clamp_kqv", "attention.max_alibi_bias", "nextn_predict_layers", "deepstack_mapping"}) {
    if (!keys.Has(name)) continue;
    double x = 1;  // an array counts as used
    if (file.Find(keys.Full(name))->type != ValueType::kArray) SLM_RETURN_IF_ERROR(keys.Float(name, &x));
    if (x != 0) return Unsupported("key " + Quoted(keys.Full(name)) + " asks for a feature that is not implemented");
  }
  SLM_ASSIGN_OR_RETURN(const auto causal, GetBool(file, keys.Full("attention.causal")));
  if (!causal.value_or(true)) return Unsupported("attention is not causal: an encoder, not a language model");
  SLM_ASSIGN_OR_RETURN(const auto parallel, GetBool(file, keys.Full("use_parallel_residual")));
  if (parallel.value_or(false)) return Unsupported("parallel residual");
  if (arch.multipliers == Feature::kNo)
    for (const char* name : {"residual_scale", "embedding_scale", "logit_scale"})
      if (keys.Has(name)) return Unsupported("key " + Quoted(keys.Full(name)) + " on this architecture");
  return Ok();
}

Status ReadSizes(const File& file, const ArchKeys& keys, ModelConfig* c) {
  SLM_RETURN_IF_ERROR(keys.RequiredInt("embedding_length", &c->d_model));
  SLM_RETURN_IF_ERROR(keys.RequiredInt("block_count", &c->n_layers));
  SLM_RETURN_IF_ERROR(keys.RequiredInt("attention.head_count", &c->n_heads));
  SLM_RETURN_IF_ERROR(keys.RequiredInt("feed_forward_length", &c->d_ff));
  SLM_RETURN_IF_ERROR(keys.RequiredInt("context_length", &c->max_context));
  c->n_kv_heads = c->n_heads;
  SLM_RETURN_IF_ERROR(keys.Int("attention.head_count_kv", &c->n_kv_heads));
  if (c->n_heads < 1) return Corrupt("no attention heads");
  if (!keys.Has("attention.key_length") && c->d_model % c->n_heads != 0)
    return Corrupt(fmt::format("width {} does not divide by {} heads", c->d_model, c->n_heads));
  c->head_dim = c->d_model / c->n_heads;
  SLM_RETURN_IF_ERROR(keys.Int("attention.key_length", &c->head_dim));
  int value_dim = c->head_dim;
  SLM_RETURN_IF_ERROR(keys.Int("attention.value_length", &value_dim));
  if (value_dim != c->head_dim) return Unsupported("keys and values of different widths");
  const Tensor* embedding = FindTensor(file, "token_embd.weight");
  if (!embedding || embedding->dims.size() != 2) return Corrupt("tensor \"token_embd.weight\" is missing or not a matrix");
  if (embedding->dims[0] > INT32_MAX) return Corrupt("more embedding rows than ids");
  c->vocab_size = static_cast<int>(embedding->dims[0]);
  int stated = c->vocab_size;
  SLM_RETURN_IF_ERROR(keys.Int("vocab_size", &stated));
  if (stated != c->vocab_size) return Corrupt(fmt::format("the file states {} tokens, its embedding has {} rows", stated, c->vocab_size));
  return Ok();
}

// A small f32 tensor of rope factors; absent: empty.
Result<std::vector<float>> ReadFactors(const File& file, const char* name, int rotary_dim) {
  const Tensor* t = FindTensor(file, name);
  if (!t) return std::vector<float>();
  if (t->dtype != DType::kF32 || t->dims.size() != 1 || t->dims[0] != rotary_dim / 2)
    return Corrupt(fmt::format("tensor {}: {} f32 values are needed", Quoted(name), rotary_dim / 2));
  return DequantizeAll(*t);
}

Status ReadRopeScaling(const File& file, const ArchKeys& keys, RopeConfig* r) {
  SLM_ASSIGN_OR_RETURN(std::string type, keys.Text("rope.scaling.type"));
  double factor = 0;
  SLM_RETURN_IF_ERROR(keys.Float("rope.scale_linear", &factor));  // older spelling
  SLM_RETURN_IF_ERROR(keys.Float("rope.scaling.factor", &factor));
  SLM_RETURN_IF_ERROR(keys.Float("rope.scaling.attn_factor", &r->attention_factor));
  SLM_RETURN_IF_ERROR(keys.Int("rope.scaling.original_context_length", &r->original_context));
  SLM_ASSIGN_OR_RETURN(r->freq_factors, ReadFactors(file, "rope_freqs.weight", r->rotary_dim));
  SLM_ASSIGN_OR_RETURN(r->long_factors, ReadFactors(file, "rope_factors_long.weight", r->rotary_dim));
  SLM_ASSIGN_OR_RETURN(r->short_factors, ReadFactors(file, "rope_factors_short.weight", r->rotary_dim));
  if (!r->long_factors.empty() || !r->short_factors.empty() || type == "longrope") {
    r->scaling = RopeScaling::kLongRope;
    return Ok();
  }
  if (type.empty()) type = "linear";  // what a factor without a type means
  if (type == "none" || (type == "linear" && (factor == 0 || factor == 1))) return Ok();
  if (type != "linear") return Unsupported("rope scaling type " + Quoted(type));
  r->scaling = RopeScaling::kLinear;
  r->factor = factor;
  return Ok();
}

Status ReadRope(const File& file, const ArchKeys& keys, const Architecture& arch, ModelConfig* c) {
  RopeConfig& r = c->rope;
  r.interleaved = arch.gguf_rope == GgufRope::kPairs;
  r.rotary_dim = c->head_dim;
  SLM_RETURN_IF_ERROR(keys.Int("rope.dimension_count", &r.rotary_dim));
  SLM_RETURN_IF_ERROR(keys.Float("rope.freq_base", &r.theta));
  SLM_RETURN_IF_ERROR(ReadRopeScaling(file, keys, &r));
  c->rope_local = r;
  if (arch.local_theta != 0) {
    c->rope_local.scaling = RopeScaling::kNone;
    c->rope_local.factor = 1;
    c->rope_local.theta = arch.local_theta;
  }
  return keys.Float("rope.freq_base_swa", &c->rope_local.theta);
}

Status ReadLayerKinds(const File& file, const ArchKeys& keys, const Architecture& arch, ModelConfig* c) {
  SLM_RETURN_IF_ERROR(keys.Int("attention.sliding_window", &c->sliding_window));
  const std::string pattern_key = keys.Full("attention.sliding_window_pattern");
  const Value* pattern = file.Find(pattern_key);
  MarkNoRopeLayers(arch.no_rope_step, c);
  if (arch.local_layers == LocalLayers::kNone && c->sliding_window > 0 && c->sliding_window < c->max_context)
    return Unsupported("sliding window on this architecture");
  if (!pattern || pattern->type != ValueType::kArray) {
    int every = 0;
    SLM_RETURN_IF_ERROR(keys.Int("attention.sliding_window_pattern", &every));
    MarkLocalLayers(arch, every, c);
    return Ok();
  }
  if (pattern->item != ValueType::kBool || pattern->count != static_cast<uint64_t>(c->n_layers))
    return Corrupt("key " + Quoted(pattern_key) + ": one boolean per layer is needed");
  for (const std::byte b : pattern->bytes) c->is_local.push_back(b != std::byte{0});
  return Ok();
}

// Features that GGUF files state by having the tensors of the first layer.
void ReadTensorFeatures(const File& file, ModelConfig* c) {
  c->fused_qkv = FindTensor(file, "blk.0.attn_qkv.weight");
  c->fused_gate_up = c->fused_gate_up && !FindTensor(file, "blk.0.ffn_gate.weight");
  c->qkv_bias = FindTensor(file, "blk.0.attn_q.bias") || FindTensor(file, "blk.0.attn_qkv.bias");
  c->o_bias = FindTensor(file, "blk.0.attn_output.bias");
  c->mlp_bias = FindTensor(file, "blk.0.ffn_up.bias") || FindTensor(file, "blk.0.ffn_down.bias");
  c->tied_head = !FindTensor(file, "output.weight");
}

Status ReadScales(const ArchKeys& keys, const Architecture& arch, ModelConfig* c) {
  SLM_RETURN_IF_ERROR(keys.Float("attention.layer_norm_rms_epsilon", &c->rms_eps));
  SLM_RETURN_IF_ERROR(keys.Float("attn_logit_softcapping", &c->attention_softcap));
  SLM_RETURN_IF_ERROR(keys.Float("final_logit_softcapping", &c->logit_softcap));
  if (arch.gemma == Feature::kYes) c->embedding_scale = std::sqrt(static_cast<float>(c->d_model));
  // The 27B models scale by E / Hq, all others by D; converters write neither, and only the depth tells (46, 62 layers).
  if (arch.gguf_scale == GgufScale::kGemma && (c->n_layers == 46 || c->n_layers == 62))
    c->attention_scale = 1.0f / std::sqrt(static_cast<float>(c->d_model / c->n_heads));
  SLM_RETURN_IF_ERROR(keys.Float("attention.scale", &c->attention_scale));
  if (arch.multipliers == Feature::kNo) return Ok();
  float divisor = 1;
  SLM_RETURN_IF_ERROR(keys.Float("logit_scale", &divisor));
  SLM_RETURN_IF_ERROR(keys.Float("residual_scale", &c->residual_scale));
  SLM_RETURN_IF_ERROR(keys.Float("embedding_scale", &c->embedding_scale));
  if (divisor == 0) return Corrupt("logit scale is 0");
  c->logit_scale = 1.0f / divisor;
  return Ok();
}

}  // namespace

Result<ModelConfig> ReadConfig(const File& file) {
  SLM_ASSIGN_OR_RETURN(const auto name, GetText(file, "general.architecture"));
  if (!name) return Corrupt("key \"general.architecture\" is missing");
  const Architecture* arch = FindByGgufName(*name);
  if (!arch) return UnknownArchitecture(*name);
  const ArchKeys keys(file, arch->name);
  ModelConfig c;
  ApplyArchitecture(*arch, &c);
  SLM_ASSIGN_OR_RETURN(const auto title, GetText(file, "general.name"));
  c.name = PrintableUtf8(title.value_or(""), 200);
  if (!keys.Has("attention.layer_norm_rms_epsilon"))
    return Corrupt("key " + Quoted(keys.Full("attention.layer_norm_rms_epsilon")) + " is missing");
  SLM_RETURN_IF_ERROR(RefuseUnsupportedKeys(file, keys, *arch));
  SLM_RETURN_IF_ERROR(ReadSizes(file, keys, &c));
  SLM_RETURN_IF_ERROR(CheckSizes(c));  // before any list per layer is made
  SLM_RETURN_IF_ERROR(ReadScales(keys, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadRope(file, keys, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadLayerKinds(file, keys, *arch, &c));
  ReadTensorFeatures(file, &c);
  SLM_RETURN_IF_ERROR(CheckConfig(&c));
  return c;
}

}  // namespace slm::model::gguf
