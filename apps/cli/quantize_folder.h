// `slm quantize --to awq|gptq|gptq-v2|compressed-tensors`: a Hugging Face folder as another one with packed weights.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "quant/folder/folder.h"
#include "verb.h"

namespace slm::cli {

// The values of --to that write a folder.
const std::vector<std::string>& FolderFormats();
bool IsFolderFormat(const std::string& to);

struct FolderRequest {
  std::string to, out, memory;
  int bits = 0, group = 0, n_threads = 0;  // 0 bits: 4; 0: groups of 32; -1: one a row
  bool symmetric = false, refit = true, requantize = false;
};

// Writes the folder and prints the report. Errors: kInvalidArgument (a place that is taken), and what quant::PlanFolder and WriteFolder
// say.
Result<int> QuantizeToFolder(const model::Model& m, const FolderRequest& request, int64_t start_ns, Io& io);

}  // namespace slm::cli
