// A folder of static graphs (slm export --to qdq) opened with ONNX Runtime as the back end.
#pragma once
#include <string>

#include "base/result.h"
#include "open_model.h"

namespace slm::cli {

// The prefill graph goes to --prefill-device, the decode graph to --decode-device, both else to --device. What slm compile
// made of them is loaded in their place where it fits. Why something does not run where it was asked to, or not from what was compiled,
// goes to stderr.
Result<OpenedModel> OpenStatic(const Io& io, const std::string& path, const OpenOptions& options);

}  // namespace slm::cli
