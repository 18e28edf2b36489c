// slm export --to onnx: an ONNX file written anew, its weights in one aligned file beside it.
#pragma once
#include <string>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

// Writes `out` and, when tensors are large enough, `out`.data. Errors: what reading the file at `path` and writing say; kInvalidArgument
// when `path` is no ONNX file or its own data would be overwritten.
Result<int> ExportOnnx(const std::string& path, const std::string& out, Io& io);

}  // namespace slm::cli
