// UTF-8 decoding table of Unicode 3.9 (table 3-7) as ranges of the second byte.
#include "text/utf8.h"

namespace slm::text {
namespace {

struct Lead {
  int size;           // bytes of the character; 0: never a first byte
  uint8_t low, high;  // range of the second byte
};

Lead LeadOf(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};  // continuation bytes and overlong forms
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view s) {
  const Lead lead = LeadOf(static_cast<uint8_t>(s[0]));
  if (lead.size == 0) return {Utf8Part::kIllFormed, 1};
  for (size_t i = 1; i < static_cast<size_t>(lead.size); ++i) {
    if (i == s.size()) return {Utf8Part::kIncomplete, i};
    const auto b = static_cast<uint8_t>(s[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (b < low || b > high) return {Utf8Part::kIllFormed, i};
  }
  return {Utf8Part::kCharacter, static_cast<size_t>(lead.size)};
}

bool IsUtf8(std::string_view s) {
  while (!s.empty()) {
    const Utf8Step step = NextUtf8(s);
    if (step.part != Utf8Part::kCharacter) return false;
    s.remove_prefix(step.size);
  }
  return true;
}

std::string ReplaceIllFormed(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  while (!s.empty()) {
    const Utf8Step step = NextUtf8(s);
    out += step.part == Utf8Part::kCharacter ? s.substr(0, step.size) : kReplacement;
    s.remove_prefix(step.size);
  }
  return out;
}

}  // namespace slm::text
