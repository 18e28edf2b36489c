// "pipeline" of a decoder in genai_config.json: graphs that run one behind the other. Internal.
#pragma once
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/hf/keys.h"
#include "onnx/genai/genai.h"

namespace slm::onnx {

// The stages of the object "decoder", in the order of the text that it was parsed from, since that is the order in which they run. Errors:
// kCorrupt (a value of a wrong type, a name twice, a name for no output), kLimit.
Result<std::vector<GenAiStage>> ReadStages(const model::hf::Keys& decoder, std::string_view text);

}  // namespace slm::onnx
