// Files of one JSON object a line: fields with the message that their absence deserves. Of this room only.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace slm::eval {

// What is wrong with a line; it does not leave EachLine, which adds the number of the line.
struct Fault {
  std::string what;
};

inline const nlohmann::json& Field(const nlohmann::json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) throw Fault{fmt::format("no field \"{}\"", name)};
  return object[name];
}

inline std::string TextField(const nlohmann::json& object, const char* name) {
  const nlohmann::json& v = Field(object, name);
  if (!v.is_string()) throw Fault{fmt::format("\"{}\" is not a string", name)};
  return v.get<std::string>();
}

inline bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// The next line, without its end; it is taken off `text`.
inline std::string_view NextLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

// f(object) for every line that is not blank, until it returns false. Errors: kCorrupt, "line n: ...".
template <class F>
Status EachLine(std::string_view jsonl, F f) {
  for (int64_t number = 1; !jsonl.empty(); ++number) {
    const std::string_view line = NextLine(&jsonl);
    if (IsBlank(line)) continue;
    try {
      const auto o = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
      if (o.is_discarded()) throw Fault{std::string("is not JSON")};
      if (!f(o)) return Ok();
    } catch (const Fault& fault) {
      return Error(Code::kCorrupt, fmt::format("line {}: {}", number, fault.what),
                   "slm eval -h and docs/eval.md show the shapes of a line");
    }
  }
  return Ok();
}

}  // namespace slm::eval
