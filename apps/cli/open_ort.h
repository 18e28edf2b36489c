// A folder of ONNX Runtime GenAI opened with ONNX Runtime as the back end.
#pragma once
#include <string>

#include "base/result.h"
#include "open_model.h"

namespace slm::cli {

// Is ONNX Runtime the back end for the model at `path`? When it is named; by itself, when an ONNX model is wanted on another device than
// the CPU or an option of the runtime is given. Own kernels run everything else.
bool TakesOrt(const OpenOptions& options, const std::string& path);

// As OpenModel, for a folder with a genai_config.json. Why something does not run where it was asked to goes to stderr.
Result<OpenedModel> OpenWithOrt(const Io& io, const std::string& path, const OpenOptions& options);

}  // namespace slm::cli
