// What `slm legalize` did, as JSON and as text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "legalize/legalize.h"

namespace slm::cli {

nlohmann::ordered_json LegalizeJson(const std::string& model, const legalize::Report& report);
std::string LegalizeText(const std::string& model, const legalize::Report& report);

}  // namespace slm::cli
