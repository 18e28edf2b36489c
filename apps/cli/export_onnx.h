// slm export --to onnx: an ONNX file written anew, its weights in one aligned file beside it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/onnx.h"
#include "verb.h"

namespace slm::cli {

struct OnnxFiles {
  std::vector<std::string> paths;
  uint64_t message_bytes = 0, data_bytes = 0;
};
// Writes `out` and, when tensors are large enough, `out`.data: `m`, which was read from `path`. Errors: those of writing; kInvalidArgument
// when the model's own files would be overwritten.
Result<OnnxFiles> WriteOnnx(const onnx::Model& m, const std::string& path, const std::string& out, const Io& io);
// "OUT: 1 kB, weights in OUT.data: 2 MB"
std::string OnnxFilesText(const OnnxFiles& files);

// The file at `path`, written so. Errors: what reading says, and WriteOnnx.
Result<int> ExportOnnx(const std::string& path, const std::string& out, Io& io);

}  // namespace slm::cli
