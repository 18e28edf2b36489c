// What `slm inspect` knows about a model, as the JSON document that it prints, and the same as text for people.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace slm::model {
struct Model;
struct TokenizerSource;
}  // namespace slm::model

namespace slm::cli {

// Opens `path` without packing or computing anything. `context`: tokens of the memory plan; 0: the model's own, at most the
// default of `slm run`. A well-formed file that this build cannot run is described too ("runnable": false, "reason").
// Errors: what LoadModel says about a damaged file; kInvalidArgument for a context beyond the model's.
Result<nlohmann::ordered_json> InspectModel(const std::string& path, int context);

// The parts "tokenizer" and "chat_template" of the report; null when there is none.
nlohmann::ordered_json TokenizerJson(const model::Model& m);
nlohmann::ordered_json TemplateJson(const model::TokenizerSource& t);

// The report as aligned lines.
std::string InspectText(const nlohmann::ordered_json& report);

}  // namespace slm::cli
