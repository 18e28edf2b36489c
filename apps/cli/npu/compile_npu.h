// slm compile --target openvino-npu-…: the graphs of a folder, or one ONNX file, as blobs for an Intel NPU, and what they cost against what
// a record says they cost before.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "npu/blob_cache.h"
#include "verb.h"

namespace slm::cli {

enum class Growth : unsigned char { kRefused, kAccepted };

struct NpuRequest {
  std::string model;     // folder of slm export --to qdq, or an ONNX file
  std::string target;    // "openvino-npu-4000"
  std::string compiler;  // folder; "": where ./dev openvino-npu put it
  std::string cache, against;
  int limit_s = 1800;
  Growth growth = Growth::kRefused;
};

// A graph as a row of a record.
struct CompiledGraph {
  std::string file;
  int tokens = 0;  // of one call; 0: not known
  Blob blob;
};
nlohmann::ordered_json RowOf(const CompiledGraph& g);
// What of `now` is more than 10 % above the row of the same file in `before`, an array of rows, as sentences. Pure.
std::vector<std::string> GrownSince(const nlohmann::json& before, const std::vector<CompiledGraph>& now);

// Exit code 3 when something grew, 1 when a graph of a folder was refused: each is reported, the others are compiled. Errors:
// kInvalidArgument, kUnavailable (no compiler), kUnsupported (it refused the one file), kLimit, kCorrupt, kIo.
Result<int> CompileForNpu(Io& io, const NpuRequest& request);

}  // namespace slm::cli
