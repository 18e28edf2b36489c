// slm compile FOLDER --device …: the graphs of a static folder through an execution provider's compiler, each kept in the cache of compiled
// graphs, where opening the folder finds them.
#pragma once
#include <string>

#include "base/result.h"
#include "open_model.h"
#include "verb.h"

namespace slm::cli {

struct StaticRequest {
  std::string folder, device, cache;
  OrtFlags ort;
};

// Exit code 1 when a graph was refused: each is reported, the others are compiled. compiled.json of the folder lists what was made. Errors:
// kUnavailable (no such provider), kCorrupt, kIo, kCancelled.
Result<int> CompileStatic(Io& io, const StaticRequest& request);

}  // namespace slm::cli
