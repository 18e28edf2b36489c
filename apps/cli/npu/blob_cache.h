// Blobs that OpenVINO's compiler made of ONNX files for Intel NPUs, without a device, kept with a record in the cache of compiled graphs.
//
// The compiler is another program, npu_compile, which runs as a child process: `./dev openvino-npu` puts it into a cache folder. Whatever
// is there under that name and takes MODEL PLATFORM BLOB may stand in for it.
#pragma once
#include <optional>
#include <string>

#include "base/result.h"
#include "verb.h"

namespace slm::cli {

struct NpuCompiler {
  std::string program;  // path of npu_compile
  std::string sha256;   // of the program and of what it was made of
  int limit_s = 1800;   // for one graph
};
// In `folder`, else in that of the environment variable SLM_OPENVINO_NPU, else in the cache folder. Errors: kUnavailable, with the command
// that installs it.
Result<NpuCompiler> FindNpuCompiler(const std::string& folder);

struct Blob {
  std::string folder, path;  // the blob is in the folder, with record.json and the compiler's log
  std::string sha256, model_sha256;
  std::string compiler;  // "OpenVINO 2026.4.1-…, NPU compiler 8.4"
  uint64_t bytes = 0;
  std::optional<double> latency_us, mhz;  // estimates of the compiler's cost model, not measured
  double compile_s = 0;                   // when it was made
  bool cached = false;
  std::string why;  // what was wrong with the one that lay there, if it was made anew
};

// The blob of the ONNX file at `path` for a platform such as "4000", from the folder `cache` or made now. Errors: kUnsupported (the
// compiler refuses; the nodes that its message is about are named), kLimit (time), kUnavailable (the program does not start), kIo.
Result<Blob> CompiledBlob(const Io& io, const NpuCompiler& compiler, const std::string& path, const std::string& platform,
                          const std::string& cache);

}  // namespace slm::cli
