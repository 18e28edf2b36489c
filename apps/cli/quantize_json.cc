// See quantize_json.h.
#include "quantize_json.h"

#include <nlohmann/json.hpp>

namespace slm::cli {
using nlohmann::ordered_json;

ordered_json CalibrationJson(const quant::Recipe& r) {
  if (!r.calibrated()) return nullptr;
  return {{"weights", r.weighted ? "inputs" : "equal"},
          {"fold", r.fold ? "awq" : "none"},
          {"gptq", r.gptq},
          {"damping", r.damping},
          {"every_candidate", r.every_candidate},
          {"inputs", r.inputs == quant::LayerInputs::kStored ? "stored" : "float"},
          {"fold_points", r.fold_points},
          {"fold_rows", r.fold_rows},
          {"most_energy", r.most_energy},
          {"gate_sequences", r.gate_sequences}};
}

ordered_json TextJson(const quant::CalibrationText& text) {
  return {{"source", text.source},
          {"sha256", text.sha256},
          {"sequences", text.sequences.size()},
          {"tokens", text.tokens()},
          {"seed", text.seed}};
}

ordered_json LayersJson(const std::vector<quant::LayerReport>& reports) {
  ordered_json layers = ordered_json::array();
  for (const quant::LayerReport& l : reports)
    layers.push_back({{"layer", l.layer},
                      {"error", l.error},
                      {"plain_error", l.plain_error},
                      {"steps", l.steps},
                      {"ways", l.ways},
                      {"capped_tokens", l.capped_tokens}});
  return layers;
}

}  // namespace slm::cli
