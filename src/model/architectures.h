// What sets one architecture apart from the next, as data: the one table of model names (architectures.cc), read by the GGUF
// and the Hugging Face config readers. Whatever a file states itself is not in here.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace slm::model {

// Which biases of the attention an HF config implies (GGUF files show it by having the tensors).
enum class QkvBias : uint8_t { kNone, kAlways, kByConfig };  // kByConfig: `attention_bias` (with the output projection's)
// Which layers see only a sliding window, unless the file lists the layer types.
enum class LocalLayers : uint8_t { kNone, kAll, kPattern, kUpper };  // kUpper: from `max_window_layers` up, when switched on
// How GGUF converters left the q and k rows for this architecture.
enum class GgufRope : uint8_t { kHalves, kPairs };
// Where the scale of q·k comes from when the file is a GGUF that does not say.
enum class GgufScale : uint8_t { kHeadDim, kGemma };
enum class Feature : uint8_t { kNo, kYes };

struct Architecture {
  std::string_view name;                           // GGUF's general.architecture; for messages
  std::string_view gguf_writes = {};               // name in GGUF files that are written, if another, for models without local layers
  std::array<std::string_view, 2> hf_classes;      // config.json `architectures`
  std::array<std::string_view, 2> hf_model_types;  // config.json `model_type` (of the text part)
  Activation activation = Activation::kSilu;
  QkvBias qkv_bias = QkvBias::kNone;
  LocalLayers local_layers = LocalLayers::kNone;
  int local_pattern = 0;  // kPattern: every n-th layer is global
  GgufRope gguf_rope = GgufRope::kHalves;
  GgufScale gguf_scale = GgufScale::kHeadDim;
  Feature qk_norm = Feature::kNo;
  Feature post_norms = Feature::kNo;
  Feature fused = Feature::kNo;            // qkv and gate|up are one tensor each
  Feature gemma = Feature::kNo;            // HF norms are 1 + w, embeddings times sqrt(E), own key of the activation
  Feature partial_rotary = Feature::kNo;   // HF's `partial_rotary_factor` counts
  Feature multipliers = Feature::kNo;      // embedding, attention, residual and logit multipliers (Granite)
  Feature tied_by_default = Feature::kNo;  // HF class default of tie_word_embeddings
  double local_theta = 0;                  // local layers rotate with this base and without scaling; 0: as the global ones
  double query_scale = 0;                  // HF default of query_pre_attn_scalar: q·k is scaled by 1/sqrt of it; 0: by D
  int no_rope_step = 0;                    // every n-th layer has no rotary embedding
  ModelConfig hf_defaults = {};            // values of the HF class that config.json may leave out; 0: required
};

std::span<const Architecture> Architectures();

// Row by GGUF name; by HF class and model type (an empty one matches, two empty ones do not). nullptr when there is none.
const Architecture* FindByGgufName(std::string_view name);
const Architecture* FindByHfNames(std::string_view hf_class, std::string_view model_type);

// kUnsupported, lists the known ones.
Error UnknownArchitecture(std::string_view what);

// The rule that a `rope_type` of config.json names. With LongRoPE's lists of factors beside it, "yarn" is an early spelling of
// "longrope". Errors: kUnsupported.
enum class FactorLists : uint8_t { kNo, kYes };
Result<RopeScaling> RopeScalingByName(std::string_view name, FactorLists lists);

// Sets the flags that follow from the architecture alone.
void ApplyArchitecture(const Architecture& a, ModelConfig* c);
// Marks layers by the architecture's own rule; c->n_layers, c->sliding_window are set. `pattern`: 0 takes the table's.
void MarkLocalLayers(const Architecture& a, int pattern, ModelConfig* c);
void MarkNoRopeLayers(int step, ModelConfig* c);

// Refuses counts out of range and heads that do not divide. kCorrupt. After it, lists per layer may be made.
Status CheckSizes(const ModelConfig& c);

// CheckSizes and more: refuses what no model can mean: counts out of range, NaN, heads that do not divide, odd rotary sizes. kCorrupt.
// Also drops what has no effect (a window as long as the context).
Status CheckConfig(ModelConfig* c);

}  // namespace slm::model
