// See config.h.
#include "model/hf/config.h"

#include <algorithm>
#include <cmath>

#include "model/architectures.h"
#include "model/hf/keys.h"
#include "model/hf/rope.h"
#include "model/json.h"
#include "model/quoted.h"

namespace slm::model::hf {
namespace {

using Json = nlohmann::json;

Error Unsupported(std::string what) { return Error(Code::kUnsupported, std::move(what), "use a model without it"); }

// The class named first in `architectures`; empty when none is named.
Result<std::string> ClassName(const Keys& root) {
  SLM_ASSIGN_OR_RETURN(const Json* list, root.List("architectures"));
  if (!list || list->empty()) return std::string();
  if (!list->front().is_string()) return Keys::Wrong("architectures", "a list of names");
  return list->front().get<std::string>();
}

Result<const Architecture*> FindArchitecture(const Keys& root, const Keys& text) {
  SLM_ASSIGN_OR_RETURN(const std::string name, ClassName(root));
  std::string type;
  SLM_RETURN_IF_ERROR(root.Text("model_type", &type));
  SLM_RETURN_IF_ERROR(text.Text("model_type", &type));
  if (const Architecture* a = FindByHfNames(name, type)) return a;
  if (name.empty() && type.empty())
    return Error(Code::kCorrupt, "neither \"architectures\" nor \"model_type\" is there", "this is not a model's config.json");
  return UnknownArchitecture(name.empty() ? type : type.empty() ? name : name + " (" + type + ")");
}

// Settings that change the result in a way this build does not compute.
Status RefuseUnsupported(const Keys& root, const Keys& text) {
  for (const Keys* k : {&root, &text}) {
    for (const char* name : {"is_encoder_decoder", "use_bidirectional_attention", "add_cross_attention"}) {
      bool on = false;
      SLM_RETURN_IF_ERROR(k->Bool(name, &on));
      if (on) return Unsupported(fmt::format("\"{}\" is on", name));
    }
    for (const char* name : {"num_local_experts", "num_experts", "n_routed_experts"}) {
      int n = 0;
      SLM_RETURN_IF_ERROR(k->Int(name, &n));
      if (n > 0) return Unsupported(fmt::format("\"{}\": mixture of experts", name));
    }
    if (k->Has("clip_qkv")) return Unsupported("\"clip_qkv\"");
  }
  return Ok();
}

Status Required(const Keys& text, const char* name, int fallback, int* out) {
  *out = fallback;
  if (!text.Has(name) && fallback == 0) return Keys::Wrong(name, "there");
  return text.Int(name, out);
}

Status ReadSizes(const Keys& text, const ModelConfig& defaults, ModelConfig* c) {
  SLM_RETURN_IF_ERROR(Required(text, "hidden_size", 0, &c->d_model));
  SLM_RETURN_IF_ERROR(Required(text, "num_hidden_layers", 0, &c->n_layers));
  SLM_RETURN_IF_ERROR(Required(text, "intermediate_size", 0, &c->d_ff));
  SLM_RETURN_IF_ERROR(Required(text, "vocab_size", defaults.vocab_size, &c->vocab_size));
  SLM_RETURN_IF_ERROR(Required(text, "num_attention_heads", defaults.n_heads, &c->n_heads));
  SLM_RETURN_IF_ERROR(Required(text, "max_position_embeddings", defaults.max_context, &c->max_context));
  c->n_kv_heads = defaults.n_kv_heads != 0 ? defaults.n_kv_heads : c->n_heads;
  SLM_RETURN_IF_ERROR(text.Int("num_key_value_heads", &c->n_kv_heads));
  c->head_dim = defaults.head_dim;
  if (c->head_dim == 0 && !text.Has("head_dim")) {
    if (c->n_heads < 1 || c->d_model % c->n_heads != 0) return Keys::Wrong("hidden_size", "a multiple of num_attention_heads");
    c->head_dim = c->d_model / c->n_heads;
  }
  SLM_RETURN_IF_ERROR(text.Int("head_dim", &c->head_dim));
  c->rms_eps = defaults.rms_eps;
  if (!text.Has("rms_norm_eps") && c->rms_eps == 0) return Keys::Wrong("rms_norm_eps", "there");
  SLM_RETURN_IF_ERROR(text.Float("rms_norm_eps", &c->rms_eps));
  return CheckSizes(*c);
}

Status ReadActivation(const Keys& text, const Architecture& arch, ModelConfig* c) {
  std::string name;
  SLM_RETURN_IF_ERROR(text.Text("hidden_act", &name));
  if (arch.gemma == Feature::kYes) {
    // Gemma: "gelu" in hidden_act is a legacy value that means the tanh form; hidden_activation decides when it is there.
    if (name == "gelu") name = "gelu_pytorch_tanh";
    SLM_RETURN_IF_ERROR(text.Text("hidden_activation", &name));
  }
  if (name.empty()) return Ok();  // the class default is the table's
  if (name == "silu" || name == "swish") c->activation = Activation::kSilu;
  else if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") c->activation = Activation::kGeluTanh;
  else if (name == "gelu") c->activation = Activation::kGeluErf;
  else return Error(Code::kUnsupported, "activation " + Quoted(name), "supported: silu, gelu, gelu_pytorch_tanh");
  return Ok();
}

Status ReadBiases(const Keys& text, const Architecture& arch, ModelConfig* c) {
  c->qkv_bias = arch.qkv_bias == QkvBias::kAlways;
  if (arch.qkv_bias == QkvBias::kByConfig) {
    SLM_RETURN_IF_ERROR(text.Bool("attention_bias", &c->qkv_bias));
    c->o_bias = c->qkv_bias;
  }
  return text.Bool("mlp_bias", &c->mlp_bias);
}

Status ReadScales(const Keys& text, const Architecture& arch, ModelConfig* c) {
  if (arch.gemma == Feature::kYes) {
    c->norm_offset = 1;
    c->embedding_scale = std::sqrt(static_cast<float>(c->d_model));
  }
  if (arch.query_scale != 0) {
    double scalar = arch.query_scale;
    SLM_RETURN_IF_ERROR(text.Float("query_pre_attn_scalar", &scalar));
    if (!(scalar > 0)) return Keys::Wrong("query_pre_attn_scalar", "positive");
    c->attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
    c->attention_softcap = text.States("attn_logit_softcapping") ? 0 : arch.hf_defaults.attention_softcap;
    c->logit_softcap = text.States("final_logit_softcapping") ? 0 : arch.hf_defaults.logit_softcap;
    SLM_RETURN_IF_ERROR(text.Float("attn_logit_softcapping", &c->attention_softcap));
    SLM_RETURN_IF_ERROR(text.Float("final_logit_softcapping", &c->logit_softcap));
  }
  if (arch.multipliers == Feature::kNo) return Ok();
  double divisor = 1;
  c->attention_scale = 1;
  SLM_RETURN_IF_ERROR(text.Float("embedding_multiplier", &c->embedding_scale));
  SLM_RETURN_IF_ERROR(text.Float("attention_multiplier", &c->attention_scale));
  SLM_RETURN_IF_ERROR(text.Float("residual_multiplier", &c->residual_scale));
  SLM_RETURN_IF_ERROR(text.Float("logits_scaling", &divisor));
  if (!(divisor > 0)) return Keys::Wrong("logits_scaling", "positive");
  c->logit_scale = static_cast<float>(1.0 / divisor);
  return Ok();
}

Status ReadLayerTypes(const Json& types, ModelConfig* c) {
  for (const Json& t : types) {
    if (!t.is_string()) return Keys::Wrong("layer_types", "a list of names");
    const std::string& name = t.get_ref<const std::string&>();
    if (name != "full_attention" && name != "sliding_attention")
      return Error(Code::kUnsupported, "layer type " + Quoted(name), "supported: full_attention, sliding_attention");
    c->is_local.push_back(name == "sliding_attention");
  }
  return Ok();
}

Status ReadWindow(const Keys& text, const Architecture& arch, ModelConfig* c) {
  bool used = arch.local_layers != LocalLayers::kNone && arch.local_layers != LocalLayers::kUpper;
  SLM_RETURN_IF_ERROR(text.Bool("use_sliding_window", &used));
  SLM_ASSIGN_OR_RETURN(const Json* types, text.List("layer_types"));
  if (types) SLM_RETURN_IF_ERROR(ReadLayerTypes(*types, c));
  if (!used) {
    c->is_local.clear();
    return Ok();
  }
  c->sliding_window = text.States("sliding_window") ? 0 : arch.hf_defaults.sliding_window;
  SLM_RETURN_IF_ERROR(text.Int("sliding_window", &c->sliding_window));
  if (c->sliding_window == 0 && arch.local_layers != LocalLayers::kPattern) c->is_local.clear();
  if (c->sliding_window == 0 && !c->is_local.empty()) return Keys::Wrong("sliding_window", "there, and some layers need it");
  if (c->sliding_window == 0) return Ok();
  if (arch.local_layers == LocalLayers::kNone) return Unsupported("\"use_sliding_window\" on this architecture");
  if (!c->is_local.empty() && arch.local_layers != LocalLayers::kAll) return Ok();
  c->is_local.clear();
  int pattern = 0, first = 28;  // 28: class default of max_window_layers
  SLM_RETURN_IF_ERROR(text.Int("sliding_window_pattern", &pattern));
  SLM_RETURN_IF_ERROR(text.Int("max_window_layers", &first));
  MarkLocalLayers(arch, pattern, c);
  if (arch.local_layers == LocalLayers::kUpper)
    for (int i = 0; i < c->n_layers; ++i) c->is_local.push_back(i >= first);
  return Ok();
}

Status ReadNoRope(const Keys& text, const Architecture& arch, ModelConfig* c) {
  if (arch.no_rope_step == 0) return Ok();
  SLM_ASSIGN_OR_RETURN(const Json* list, text.List("no_rope_layers"));
  if (!list) {
    int step = arch.no_rope_step;
    SLM_RETURN_IF_ERROR(text.Int("no_rope_layer_interval", &step));
    MarkNoRopeLayers(step, c);
    return Ok();
  }
  for (const Json& v : *list) {  // despite its name: 1 means that the layer rotates
    if (!v.is_number_integer() && !v.is_boolean()) return Keys::Wrong("no_rope_layers", "a list of 0 and 1");
    c->no_rope.push_back(v.is_boolean() ? !v.get<bool>() : v.get<int64_t>() == 0);
  }
  return Ok();
}

// One id or a list of ids, appended without repetition.
Status AddIds(const Keys& keys, const char* name, int vocab_size, std::vector<int32_t>* ids) {
  const Json* v = keys.Find(name);
  if (!v) return Ok();
  const Json list = v->is_array() ? *v : Json::array({*v});
  for (const Json& id : list) {
    if (!id.is_number_integer()) return Keys::Wrong(name, "a token id");
    const int64_t n = id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX ? INT64_MAX : id.get<int64_t>();
    if (n < 0 || n >= vocab_size) return Keys::Wrong(name, fmt::format("a token id below {}: it is {}", vocab_size, id.dump()));
    if (std::find(ids->begin(), ids->end(), n) == ids->end()) ids->push_back(static_cast<int32_t>(n));
  }
  return Ok();
}

Status ReadIds(const Keys& root, const Keys& text, ModelConfig* c) {
  for (const Keys* k : {&root, &text}) {
    SLM_RETURN_IF_ERROR(AddIds(*k, "bos_token_id", c->vocab_size, &c->bos_ids));
    SLM_RETURN_IF_ERROR(AddIds(*k, "eos_token_id", c->vocab_size, &c->eos_ids));
  }
  return Ok();
}

}  // namespace

Result<ModelConfig> ParseConfig(std::string_view config_json) {
  SLM_ASSIGN_OR_RETURN(const Json json, ParseJson(config_json));
  if (!json.is_object()) return Error(Code::kCorrupt, "not a JSON object", "this is not a model's config.json");
  const Keys root(json);
  SLM_ASSIGN_OR_RETURN(const Json* inner, root.Object("text_config"));
  const Json& text_json = inner ? *inner : json;
  const Keys text(text_json);
  SLM_ASSIGN_OR_RETURN(const Architecture* arch, FindArchitecture(root, text));
  SLM_RETURN_IF_ERROR(RefuseUnsupported(root, text));
  ModelConfig c;
  ApplyArchitecture(*arch, &c);
  std::string name;
  SLM_RETURN_IF_ERROR(root.Text("_name_or_path", &name));
  c.name = PrintableUtf8(name, 200);
  SLM_RETURN_IF_ERROR(ReadSizes(text, arch->hf_defaults, &c));
  SLM_RETURN_IF_ERROR(ReadActivation(text, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadBiases(text, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadScales(text, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadRope(text_json, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadWindow(text, *arch, &c));
  SLM_RETURN_IF_ERROR(ReadNoRope(text, *arch, &c));
  c.tied_head = arch->tied_by_default == Feature::kYes;
  SLM_RETURN_IF_ERROR(text.Bool("tie_word_embeddings", &c.tied_head));
  SLM_RETURN_IF_ERROR(root.Bool("tie_word_embeddings", &c.tied_head));
  SLM_RETURN_IF_ERROR(ReadIds(root, text, &c));
  SLM_RETURN_IF_ERROR(CheckConfig(&c));
  return c;
}

Status AddGenerationConfig(std::string_view generation_config_json, ModelConfig* c) {
  SLM_ASSIGN_OR_RETURN(const Json json, ParseJson(generation_config_json));
  const Keys keys(json);
  SLM_RETURN_IF_ERROR(AddIds(keys, "bos_token_id", c->vocab_size, &c->bos_ids));
  return AddIds(keys, "eos_token_id", c->vocab_size, &c->eos_ids);
}

}  // namespace slm::model::hf
