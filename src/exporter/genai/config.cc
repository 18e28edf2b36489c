// genai_config.json; the keys are those of onnxruntime-genai's src/config.h.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "exporter/exporter.h"
#include "exporter/genai/config.h"

namespace slm::exporter {
using nlohmann::ordered_json;

void AddEnds(const model::Model& m, ordered_json& config) {
  const model::TokenizerSource& t = m.tokenizer;
  std::vector<int32_t> eos = m.config.eos_ids;
  for (const int id : {t.eos, t.eot, t.eom})
    if (id >= 0 && std::find(eos.begin(), eos.end(), id) == eos.end()) eos.push_back(id);
  const int bos = !m.config.bos_ids.empty() ? m.config.bos_ids[0] : t.bos;
  if (bos >= 0) config["bos_token_id"] = bos;
  if (!eos.empty()) config["eos_token_id"] = eos;
  config["pad_token_id"] = t.pad >= 0 ? t.pad : eos.empty() ? 0 : eos[0];
}

ordered_json GreedySearch(int context) {
  return {{"do_sample", false},
          {"max_length", context},
          {"min_length", 0},
          {"num_beams", 1},
          {"num_return_sequences", 1},
          {"past_present_share_buffer", true},
          {"temperature", 1.0},
          {"top_k", 50},
          {"top_p", 1.0}};
}

std::string GenAiConfig(const model::Model& m, int context) {
  const model::ModelConfig& c = m.config;
  ordered_json decoder = {
      {"session_options", {{"log_id", "onnxruntime-genai"}, {"provider_options", ordered_json::array()}}},
      {"filename", "model.onnx"},
      {"head_size", c.head_dim},
      {"hidden_size", c.d_model},
      {"inputs",
       {{"input_ids", "input_ids"},
        {"attention_mask", "attention_mask"},
        {"past_key_names", "past_key_values.%d.key"},
        {"past_value_names", "past_key_values.%d.value"}}},
      {"outputs", {{"logits", "logits"}, {"present_key_names", "present.%d.key"}, {"present_value_names", "present.%d.value"}}},
      {"num_attention_heads", c.n_heads},
      {"num_hidden_layers", c.n_layers},
      {"num_key_value_heads", c.n_kv_heads}};
  ordered_json model = {{"type", "decoder"}, {"vocab_size", c.vocab_size}, {"context_length", context}, {"decoder", std::move(decoder)}};
  AddEnds(m, model);
  return ordered_json{{"model", std::move(model)}, {"search", GreedySearch(context)}}.dump(2) + "\n";
}

}  // namespace slm::exporter
