// One run of `slm quantize` to a GGUF file once its plan is made: types by sensitivity where the recipe wants them, the file, the gate,
// and the result as JSON and as text.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gate/gate.h"
#include "quant/quant.h"
#include "quantize_types.h"
#include "verb.h"

namespace slm::cli {

// What is known before the file is written, and what was found out.
struct QuantizeRun {
  std::string out, source;  // paths
  std::string memory;       // as --mem has it
  const GateOptions& gate;
  const model::Model& m;
  quant::Plan plan;
  const quant::WriteOptions& options;
  const std::optional<quant::CalibrationText>& calibration;
  int64_t start_ns = 0;
  HeldOut text = {};
  quant::Report report = {};
  size_t taken_over = 0;  // tensors of an earlier run
  std::optional<Verdict> verdict = {};
  std::vector<std::string> notes = {};
  std::optional<quant::Sensitivities> sensitivities = {};
  std::vector<Try> tries = {};
};

// Chooses types, writes and judges; under a budget of KLD again with larger types while it is missed. A run that ends early leaves behind
// work that another one goes on with, or nothing when no other could.
Status WriteQuantized(QuantizeRun& run, Io& io);

nlohmann::ordered_json ResultJson(const QuantizeRun& run);
void PrintResult(const QuantizeRun& run, const nlohmann::ordered_json& result, Io& io);

}  // namespace slm::cli
