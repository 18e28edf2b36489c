// genai_config.json: the description that a folder made for ONNX Runtime GenAI has beside its ONNX files.
//
// Only what says which files there are and what shape the model has; options of sessions and of search are left alone.
#pragma once
#include <string>
#include <vector>

#include "base/result.h"

namespace slm::onnx {

struct GenAiFile {
  std::string role;  // "decoder", "encoder", …, or the name of a stage of the decoder's pipeline
  std::string name;  // plain name in the folder; it is there
};

// Names of the decoder's inputs and outputs; those of a layer have one %d.
struct GenAiNames {
  std::string input_ids = "input_ids", attention_mask = "attention_mask", position_ids = "position_ids";
  std::string past_key = "past_key_values.%d.key", past_value = "past_key_values.%d.value";
  std::string last_slot = "past_seq_len", total = "total_seq_len";  // of keys past_sequence_length and total_sequence_length
  std::string logits = "logits", present_key = "present.%d.key", present_value = "present.%d.value";
};

struct GenAiConfig {
  std::string type;  // "qwen2", "decoder-pipeline", …
  int context_length = 0, vocab_size = 0;
  int n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  std::vector<int> bos_ids, eos_ids;
  GenAiNames names;
  std::vector<GenAiFile> files;  // every file once
};

// Is `path` a folder with a genai_config.json?
bool IsGenAiFolder(const std::string& path);

// Errors: kNotFound, kIo, kCorrupt (not JSON, a value of a wrong type or beyond any model's size, a file outside the folder, a name
// pattern that is more than one %d).
Result<GenAiConfig> ReadGenAiConfig(const std::string& folder);

// Is the model one graph, its decoder?
bool OnlyDecoder(const GenAiConfig& config);

}  // namespace slm::onnx
