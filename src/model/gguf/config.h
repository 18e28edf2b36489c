// From GGUF keys to ModelConfig and TokenizerSource. Key names: ggml's docs/gguf.md and llama.cpp's llama-arch.cpp.
#pragma once
#include "base/result.h"
#include "model/gguf/reader.h"
#include "model/model.h"

namespace slm::model::gguf {

// Hyperparameters; the tensors of `file` tell what keys leave out (biases, tied head, vocabulary, rope factors).
// Errors: kUnsupported (architecture, rope scaling, experts, …), kCorrupt (missing or senseless values).
Result<ModelConfig> ReadConfig(const File& file);

// The embedded vocabulary; kind stays empty when the file has none. Errors: kCorrupt (lengths that do not fit together).
Result<TokenizerSource> ReadTokenizer(const File& file);

// Sets bos_ids and eos_ids: the ids that the file names, and control tokens whose spelling is a known end of turn.
void FindStopTokens(const TokenizerSource& t, ModelConfig* c);

}  // namespace slm::model::gguf
