// See json.h.
#include "model/json.h"

#include <fmt/format.h>

namespace slm::model {

bool NestingWithin(std::string_view text, int depth) {
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;  // the escaped character cannot end the string
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++level > depth) return false;
    } else if (c == '}' || c == ']') {
      --level;
    }
  }
  return true;
}

Result<nlohmann::json> ParseJson(std::string_view text, JsonLimits limits) {
  constexpr const char* kHint = "the file is damaged: fetch it again";
  if (text.size() > limits.bytes)
    return Error(Code::kCorrupt, fmt::format("{} bytes of JSON; at most {} are read", text.size(), limits.bytes), kHint);
  if (!NestingWithin(text, limits.depth))
    return Error(Code::kCorrupt, fmt::format("JSON nested deeper than {} levels", limits.depth), kHint);
  nlohmann::json parsed = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return Error(Code::kCorrupt, "not valid JSON", kHint);
  return parsed;
}

}  // namespace slm::model
