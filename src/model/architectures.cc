// The table of architectures. To add one: a row here, a name in roles.inc if a tensor is spelt in a new way, a tiny model in
// tests/tiny. Sources: the configuration and modeling files of transformers, the converters and loaders of llama.cpp.
#include "model/architectures.h"

#include <fmt/format.h>

#include <string>

#include "model/model.h"
#include "model/quoted.h"

namespace slm::model {
namespace {

constexpr Feature kYes = Feature::kYes;

ModelConfig GemmaDefaults(int vocab, int context) {
  ModelConfig c;
  c.n_heads = 8;
  c.n_kv_heads = 4;
  c.head_dim = 256;
  c.vocab_size = vocab;
  c.max_context = context;
  c.sliding_window = 4096;
  c.rms_eps = 1e-6f;
  return c;
}

ModelConfig Gemma2Defaults() {
  ModelConfig c = GemmaDefaults(256000, 8192);
  c.attention_softcap = 50;
  c.logit_softcap = 30;
  return c;
}

ModelConfig Gemma3Defaults() {
  ModelConfig c = GemmaDefaults(262208, 131072);
  c.rope.theta = 1e6;
  return c;
}

// Most classes: sizes are always in the file. The window is that of the class; theta as well.
ModelConfig Defaults(int window, double theta = 10000.0) {
  ModelConfig c;
  c.rms_eps = 0;
  c.sliding_window = window;
  c.rope.theta = theta;
  return c;
}

std::vector<Architecture> Table() {
  constexpr Activation kTanh = Activation::kGeluTanh;
  return {
      {.name = "llama",
       .hf_classes = {"LlamaForCausalLM"},
       .hf_model_types = {"llama"},
       .qkv_bias = QkvBias::kByConfig,
       .gguf_rope = GgufRope::kPairs,
       .hf_defaults = Defaults(0)},
      {.name = "mistral",
       .gguf_writes = "llama",
       .hf_classes = {"MistralForCausalLM"},
       .hf_model_types = {"mistral"},
       .local_layers = LocalLayers::kAll,
       .gguf_rope = GgufRope::kPairs,
       .hf_defaults = Defaults(4096)},
      {.name = "smollm3",
       .hf_classes = {"SmolLM3ForCausalLM"},
       .hf_model_types = {"smollm3"},
       .qkv_bias = QkvBias::kByConfig,
       .gguf_rope = GgufRope::kPairs,
       .tied_by_default = kYes,
       .no_rope_step = 4,
       .hf_defaults = Defaults(0, 2e6)},
      {.name = "qwen2",
       .hf_classes = {"Qwen2ForCausalLM"},
       .hf_model_types = {"qwen2"},
       .qkv_bias = QkvBias::kAlways,
       .local_layers = LocalLayers::kUpper,
       .hf_defaults = Defaults(4096)},
      {.name = "qwen3",
       .hf_classes = {"Qwen3ForCausalLM"},
       .hf_model_types = {"qwen3"},
       .qkv_bias = QkvBias::kByConfig,
       .local_layers = LocalLayers::kUpper,
       .qk_norm = kYes,
       .hf_defaults = Defaults(4096)},
      {.name = "gemma",
       .hf_classes = {"GemmaForCausalLM"},
       .hf_model_types = {"gemma"},
       .activation = kTanh,
       .qkv_bias = QkvBias::kByConfig,
       .gemma = kYes,
       .tied_by_default = kYes,
       .hf_defaults = Defaults(0)},
      {.name = "gemma2",
       .hf_classes = {"Gemma2ForCausalLM"},
       .hf_model_types = {"gemma2"},
       .activation = kTanh,
       .qkv_bias = QkvBias::kByConfig,
       .local_layers = LocalLayers::kPattern,
       .local_pattern = 2,
       .gguf_scale = GgufScale::kGemma,
       .post_norms = kYes,
       .gemma = kYes,
       .tied_by_default = kYes,
       .query_scale = 256,
       .hf_defaults = Gemma2Defaults()},
      {.name = "gemma3",
       .hf_classes = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
       .hf_model_types = {"gemma3_text", "gemma3"},
       .activation = kTanh,
       .qkv_bias = QkvBias::kByConfig,
       .local_layers = LocalLayers::kPattern,
       .local_pattern = 6,
       .gguf_scale = GgufScale::kGemma,
       .qk_norm = kYes,
       .post_norms = kYes,
       .gemma = kYes,
       .tied_by_default = kYes,
       .local_theta = 10000.0,
       .query_scale = 256,
       .hf_defaults = Gemma3Defaults()},
      {.name = "phi3",
       .hf_classes = {"Phi3ForCausalLM"},
       .hf_model_types = {"phi3"},
       .local_layers = LocalLayers::kAll,
       .fused = kYes,
       .partial_rotary = kYes,
       .hf_defaults = Defaults(0)},
      {.name = "granite",
       .hf_classes = {"GraniteForCausalLM"},
       .hf_model_types = {"granite"},
       .qkv_bias = QkvBias::kByConfig,
       .gguf_rope = GgufRope::kPairs,
       .multipliers = kYes,
       .hf_defaults = Defaults(0)},
  };
}

}  // namespace

std::span<const Architecture> Architectures() {
  static const std::vector<Architecture> table = Table();
  return table;
}

const Architecture* FindByGgufName(std::string_view name) {
  for (const Architecture& a : Architectures())
    if (a.name == name) return &a;
  return nullptr;
}

const Architecture* FindByHfNames(std::string_view hf_class, std::string_view model_type) {
  const auto in = [](std::string_view s, const std::array<std::string_view, 2>& names) { return s == names[0] || s == names[1]; };
  if (hf_class.empty() && model_type.empty()) return nullptr;
  for (const Architecture& a : Architectures())
    if ((hf_class.empty() || in(hf_class, a.hf_classes)) && (model_type.empty() || in(model_type, a.hf_model_types))) return &a;
  return nullptr;
}

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& a : Architectures()) names.emplace_back(a.name);
  return names;
}

Error UnknownArchitecture(std::string_view what) {
  std::string known;
  for (const Architecture& a : Architectures()) known += (known.empty() ? "" : ", ") + std::string(a.name);
  return Error(Code::kUnsupported, "unknown architecture " + Quoted(what), "known architectures: " + known);
}

Result<RopeScaling> RopeScalingByName(std::string_view name, FactorLists lists) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "longrope" || name == "su" || (name == "yarn" && lists == FactorLists::kYes)) return RopeScaling::kLongRope;
  return Error(Code::kUnsupported, "rope type " + Quoted(name), "supported: default, linear, llama3, longrope");
}

void ApplyArchitecture(const Architecture& a, ModelConfig* c) {
  c->architecture = a.name;
  c->activation = a.activation;
  c->qk_norm = a.qk_norm == Feature::kYes;
  c->post_norms = a.post_norms == Feature::kYes;
  c->fused_qkv = c->fused_gate_up = a.fused == Feature::kYes;
}

void MarkLocalLayers(const Architecture& a, int pattern, ModelConfig* c) {
  if (c->sliding_window == 0 || a.local_layers == LocalLayers::kNone || a.local_layers == LocalLayers::kUpper) return;
  if (pattern == 0) pattern = a.local_pattern;
  c->is_local.assign(static_cast<size_t>(c->n_layers), 1);
  if (a.local_layers == LocalLayers::kPattern)
    for (int i = 0; i < c->n_layers; ++i) c->is_local[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
}

void MarkNoRopeLayers(int step, ModelConfig* c) {
  if (step <= 0) return;
  c->no_rope.assign(static_cast<size_t>(c->n_layers), 0);
  for (int i = step - 1; i < c->n_layers; i += step) c->no_rope[static_cast<size_t>(i)] = 1;
}

}  // namespace slm::model
