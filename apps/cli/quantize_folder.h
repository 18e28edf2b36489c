// `slm quantize --to awq|gptq|gptq-v2|compressed-tensors`: a Hugging Face folder as another one with packed weights.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "gate/gate.h"
#include "model/model.h"
#include "quant/quant.h"
#include "verb.h"

namespace slm::cli {

// The values of --to that write a folder.
const std::vector<std::string>& FolderFormats();
bool IsFolderFormat(const std::string& to);

struct FolderRequest {
  std::string to, out, source, memory, report, scheme, activations, ranges;
  int bits = 0, group = 0;  // 0 bits: 4; 0: groups of 32; -1: one a row
  bool symmetric = false, requantize = false;
  quant::Recipe recipe;
  GateOptions gate;
  HeldOut text = {};  // unless the gate is off
};
// Errors: kInvalidArgument (options that do not go together).
Status CheckFolderRequest(const FolderRequest& request);
nlohmann::ordered_json FolderRecipeJson(const FolderRequest& request);

// Writes the folder, judges it, prints the report. `m` was read from request.source; `options` as quant::WriteFolder takes them, without
// progress. Errors: kInvalidArgument (a place that is taken), and what quant::PlanFolder, WriteFolder and the gate say.
Result<int> QuantizeToFolder(const model::Model& m, const FolderRequest& request, const quant::WriteOptions& options, int64_t start_ns,
                             Io& io);

}  // namespace slm::cli
