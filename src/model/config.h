// ModelConfig: everything about an architecture that the graph builder needs, in one flat record, whatever file it came from.
//
// Readers fill it (GGUF metadata, config.json); `architectures.cc` holds the only table of model names and sets the feature
// flags. Nothing else in the code asks for a model's name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace slm::model {

enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf };

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kLongRope };

// Rotary position embedding (RoFormer, arXiv 2104.09864) with the scaling rules that released models use.
struct RopeConfig {
  double theta = 10000.0;
  int rotary_dim = 0;        // rotated values per head, even, <= head_dim (partial rotary when smaller)
  bool interleaved = false;  // true: pairs (2i, 2i+1) as in llama GGUF files; false: pairs (i, i + rotary_dim/2) as in HF files
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                                   // linear, llama3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  int original_context = 0;                              // llama3, longrope: tokens
  std::vector<float> long_factors, short_factors;        // longrope: [rotary_dim / 2] each
  std::vector<float> freq_factors;                       // explicit divisors of the frequencies [rotary_dim / 2] (rope_freqs.weight)
  double attention_factor = 1.0;                         // longrope: multiplies cos and sin
};

struct ModelConfig {
  std::string architecture;  // name in the table: "llama", "qwen2", …; for messages only
  std::string name;          // what the file calls itself, may be empty
  int vocab_size = 0;
  int d_model = 0;  // E
  int n_layers = 0;
  int n_heads = 0;      // Hq
  int n_kv_heads = 0;   // Hkv, divides n_heads
  int head_dim = 0;     // D
  int d_ff = 0;         // F
  int max_context = 0;  // tokens the model was made for
  float rms_eps = 1e-5f;
  Activation activation = Activation::kSilu;
  RopeConfig rope;                // global layers
  RopeConfig rope_local;          // local layers (Gemma 3); unused when no layer is local
  int sliding_window = 0;         // tokens a local layer sees, itself included; 0: none
  std::vector<uint8_t> is_local;  // [n_layers] 1: sliding window + rope_local. Empty: none is
  std::vector<uint8_t> no_rope;   // [n_layers] 1: the layer has no rotary embedding (SmolLM3). Empty: all have
  bool qkv_bias = false;          // Qwen2
  bool o_bias = false, mlp_bias = false;
  bool qk_norm = false;         // RMSNorm over D on q and k before RoPE (Qwen3, Gemma 3)
  bool post_norms = false;      // RMSNorm after attention and after the MLP, before the residual add (Gemma)
  bool tied_head = false;       // the head is the embedding matrix
  bool fused_qkv = false;       // one tensor holds q | k | v rows (Phi-3)
  bool fused_gate_up = false;   // one tensor holds gate | up rows (Phi-3)
  float norm_offset = 0;        // RMSNorm multiplies by (norm_offset + w): 1 for Gemma HF files, 0 else (GGUF has it folded in)
  float embedding_scale = 1;    // multiplies embeddings (Gemma: sqrt(E) in f32, as the reference does when it runs in f32)
  float attention_scale = 0;    // multiplies q·k; 0: 1/sqrt(D)
  float attention_softcap = 0;  // 0: none
  float logit_softcap = 0;      // 0: none
  float residual_scale = 1, logit_scale = 1;  // Granite-style multipliers; 1: none
  std::vector<int32_t> bos_ids, eos_ids;      // from the file; eos: every id that ends a turn
};

}  // namespace slm::model
