// genai_config.json: the description that a folder made for ONNX Runtime GenAI has beside its ONNX files.
//
// Only what says which files there are and what shape the model has; options of sessions and of search are left alone.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace slm::onnx {

struct GenAiFile {
  std::string role;  // "decoder", "encoder", …, or the name of a stage of the decoder's pipeline
  std::string name;  // plain name in the folder; it is there
};

// A graph of a pipeline. What a stage makes is known to later ones, and to the stages of the next call, under the name of the output, or
// under the one that it is forwarded to.
struct GenAiStage {
  std::string name;
  std::string file;                              // plain name in the folder; it is there
  std::vector<std::string> inputs, outputs;      // those of its graph that are used
  std::map<std::string, std::string> forwarded;  // by output
  bool on_prompt = true, on_token = true;        // runs for a prompt of several tokens, for one token
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
  std::vector<GenAiFile> files;    // every file once
  std::vector<GenAiStage> stages;  // of the decoder's pipeline, in the order in which they run
  bool slides_cache = false;       // the cache is a window that forgets
};

// Is `path` a folder with a genai_config.json?
bool IsGenAiFolder(const std::string& path);

// Errors: kNotFound, kIo, kCorrupt (not JSON, a value of a wrong type or beyond any model's size, a file outside the folder, a name
// pattern that is more than one %d, two stages of one name), kLimit (more stages than any model has).
Result<GenAiConfig> ReadGenAiConfig(const std::string& folder);

// The same of a text alone; no file is looked for. Errors: kCorrupt, kLimit.
Result<GenAiConfig> ParseGenAiConfig(std::string_view text);

// Is the model one graph, its decoder? Only the stages of a pipeline?
bool OnlyDecoder(const GenAiConfig& config);
bool OnlyPipeline(const GenAiConfig& config);

}  // namespace slm::onnx
