// config.json and generation_config.json as ModelConfig. Source: the configuration classes of transformers, both the spelling
// of its versions up to 4 (rope_theta, rope_scaling) and that of version 5 (rope_parameters).
#pragma once
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace slm::model::hf {

// `tied_head` is what the config says; the loader corrects it by the tensors that are there. Errors: kUnsupported (architecture, rope type,
// quantization, …), kCorrupt.
Result<ModelConfig> ParseConfig(std::string_view config_json);

// Adds the end tokens of generation_config.json. Errors: kCorrupt.
Status AddGenerationConfig(std::string_view generation_config_json, ModelConfig* c);

}  // namespace slm::model::hf
