// What `slm inspect` says about ONNX files and folders of ONNX Runtime GenAI; the same document as for other models, with "graphs".
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace slm::cli {

// Of a path that importer::IsOnnxModel takes; "runnable" is false and the reason open. Errors: what ReadModel and ReadGenAiConfig say about
// a damaged file.
Result<nlohmann::ordered_json> InspectOnnx(const std::string& path);

}  // namespace slm::cli
