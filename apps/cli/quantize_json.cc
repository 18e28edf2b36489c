// See quantize_json.h.
#include "quantize_json.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "quantize_types.h"

namespace slm::cli {
using nlohmann::ordered_json;

ordered_json CalibrationJson(const quant::Recipe& r) {
  if (!r.calibrated()) return nullptr;
  return {{"weights", r.weighted ? "inputs" : "equal"},
          {"fold", r.fold && r.smooth ? "awq, smooth"
                   : r.fold           ? "awq"
                   : r.smooth         ? "smooth"
                                      : "none"},
          {"gptq", r.gptq},
          {"signround_steps", r.signround ? ordered_json(r.signround_steps) : ordered_json(nullptr)},
          {"damping", r.damping},
          {"every_candidate", r.every_candidate},
          {"inputs", r.inputs == quant::LayerInputs::kStored ? "stored" : "float"},
          {"fold_points", r.fold_points},
          {"fold_rows", r.fold_rows},
          {"most_energy", r.most_energy},
          {"gate_sequences", r.gate_sequences}};
}

std::string LowerName(DType dtype) {
  std::string name(Info(dtype).name);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

ordered_json RecipeJson(const quant::Recipe& r) {
  ordered_json allocation = nullptr;
  if (r.allocates()) {
    ordered_json types = ordered_json::array();
    for (const DType t : r.types) types.push_back(LowerName(t));
    allocation = {{"by", "least expected KLD, measured on the calibration text"},
                  {"candidates", types},
                  {"most_kld", r.most_kld ? ordered_json(*r.most_kld) : ordered_json(nullptr)},
                  {"most_tries", r.most_kld ? kMostTries : 1},
                  {"sequences", r.measured_sequences},
                  {"rows", r.measured_rows},
                  {"followed_tokens", r.followed_tokens}};
  }
  return {{"recipe", r.name},
          {"type", r.allocates() ? "measured" : LowerName(r.body)},
          {"head", r.allocates() && r.measures_vocabulary ? "measured" : LowerName(r.head)},
          {"search", r.search == quant::Search::kRefit ? "refit" : "rtn"},
          {"budget_bpw", r.bpw > 0 ? ordered_json(r.bpw) : ordered_json(nullptr)},
          {"body_bpw_limit", r.body_bpw > 0 ? ordered_json(r.body_bpw) : ordered_json(nullptr)},
          {"norms", "f32"},
          {"rotation", r.rotate ? ordered_json("hadamard") : ordered_json(nullptr)},
          {"allocation", std::move(allocation)},
          {"calibration", CalibrationJson(r)}};
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
  for (const quant::LayerReport& l : reports) {
    layers.push_back({{"layer", l.layer},
                      {"error", l.error},
                      {"plain_error", l.plain_error},
                      {"steps", l.steps},
                      {"ways", l.ways},
                      {"capped_tokens", l.capped_tokens}});
    if (l.ranges.empty()) continue;
    ordered_json ranges = ordered_json::array();
    for (const quant::InputRange& i : l.ranges) ranges.push_back({{"matrix", i.matrix}, {"range", i.range}, {"largest", i.largest}});
    layers.back()["ranges"] = std::move(ranges);
  }
  return layers;
}

}  // namespace slm::cli
