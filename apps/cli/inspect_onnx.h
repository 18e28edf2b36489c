// What `slm inspect` says about ONNX files and folders of ONNX Runtime GenAI; the same document as for other models, with "graphs".
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace slm::cli {

// A file whose name ends in ".onnx", or a folder with a genai_config.json and no safetensors weights, which would be the model.
bool IsOnnxPath(const std::string& path);

// Errors: what ReadModel and ReadGenAiConfig say about a damaged file.
Result<nlohmann::ordered_json> InspectOnnx(const std::string& path);

}  // namespace slm::cli
