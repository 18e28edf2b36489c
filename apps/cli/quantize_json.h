// What slm quantize says of a run in JSON: the parts that GGUF files and packed folders share.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "quant/quant.h"

namespace slm::cli {

// "q4_k"
std::string LowerName(DType dtype);
// The recipe of a GGUF file with all choices, as --print-recipe shows it.
nlohmann::ordered_json RecipeJson(const quant::Recipe& recipe);
// How the recipe calibrates; null when it does not.
nlohmann::ordered_json CalibrationJson(const quant::Recipe& recipe);
// {source, sha256, sequences, tokens, seed}
nlohmann::ordered_json TextJson(const quant::CalibrationText& text);
nlohmann::ordered_json LayersJson(const std::vector<quant::LayerReport>& layers);

}  // namespace slm::cli
