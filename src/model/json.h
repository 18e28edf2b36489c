// JSON out of untrusted files: size and nesting are bounded before the parser runs, and no exception leaves.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace slm::model {

struct JsonLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 64;
};

// Parses a whole document. Errors: kCorrupt (not JSON, nested too deep, too large).
Result<nlohmann::json> ParseJson(std::string_view text, JsonLimits limits = {});

// True when no object or array of `text` is nested deeper than `depth`. Does not check the grammar.
bool NestingWithin(std::string_view text, int depth);

}  // namespace slm::model
