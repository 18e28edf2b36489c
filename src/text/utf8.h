// UTF-8 by maximal ill-formed parts, as the WHATWG Encoding standard (section 4.1) and Unicode 3.9 (table 3-7) define them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slm::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Part : uint8_t { kCharacter, kIllFormed, kIncomplete };
struct Utf8Step {
  Utf8Part part;
  size_t size;  // bytes, at least 1
};

// The first character or maximal ill-formed part of `s` (not empty). kIncomplete: `s` ends inside a character that more bytes
// could complete.
Utf8Step NextUtf8(std::string_view s);

// Is all of `s` well formed?
bool IsUtf8(std::string_view s);

// `s` with U+FFFD for each maximal ill-formed part (an incomplete end is one).
std::string ReplaceIllFormed(std::string_view s);

}  // namespace slm::text
