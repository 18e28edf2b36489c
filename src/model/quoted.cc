// See quoted.h.
#include "model/quoted.h"

#include <fmt/format.h>

namespace slm::model {
namespace {

constexpr size_t kQuoteLimit = 80;

// Length of the well-formed UTF-8 sequence at the start of s, or 0 (Unicode 15, table 3-7).
size_t SequenceLength(std::string_view s) {
  const auto at = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const auto tail = [&](size_t i) { return (at(i) & 0xc0u) == 0x80u; };
  const unsigned a = at(0), b = at(1);
  if (a < 0x80) return 1;
  if (a >= 0xc2 && a <= 0xdf) return tail(1) ? 2 : 0;
  if (a >= 0xe0 && a <= 0xef) {
    const bool second = tail(1) && !(a == 0xe0 && b < 0xa0) && !(a == 0xed && b > 0x9f);
    return second && tail(2) ? 3 : 0;
  }
  if (a >= 0xf0 && a <= 0xf4) {
    const bool second = tail(1) && !(a == 0xf0 && b < 0x90) && !(a == 0xf4 && b > 0x8f);
    return second && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kQuoteLimit)) {
    const unsigned u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u < 0x7f && c != '"' && c != '\\') out += c;
    else out += fmt::format("\\x{:02x}", u);
  }
  return out + (text.size() > kQuoteLimit ? "…\"" : "\"");
}

std::string PrintableUtf8(std::string_view text, size_t limit) {
  std::string out;
  size_t i = 0;
  while (i < text.size() && out.size() < limit) {
    const size_t n = SequenceLength(text.substr(i));
    if (n == 0) out += "\xef\xbf\xbd";
    else out.append(text.substr(i, n));
    i += n == 0 ? 1 : n;
  }
  if (i < text.size()) out += "…";
  return out;
}

}  // namespace slm::model
