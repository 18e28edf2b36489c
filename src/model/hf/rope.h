// The rotary part of config.json. Internal to hf/.
#pragma once
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "model/architectures.h"
#include "model/config.h"

namespace slm::model::hf {

// Fills c->rope and c->rope_local from the (text) config; c->head_dim and c->max_context are set.
// Source: transformers' modeling_rope_utils.py. Errors: kUnsupported (rope type), kCorrupt.
Status ReadRope(const nlohmann::json& config, const Architecture& arch, ModelConfig* c);

}  // namespace slm::model::hf
