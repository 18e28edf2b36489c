// Parts of genai_config.json that every kind of folder has. Not a door.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "model/model.h"

namespace slm::exporter {

// bos_token_id, eos_token_id and pad_token_id, of the object "model".
void AddEnds(const model::Model& m, nlohmann::ordered_json& config);
// The object "search".
nlohmann::ordered_json GreedySearch(int context);

}  // namespace slm::exporter
