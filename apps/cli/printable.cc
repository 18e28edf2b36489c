// Decodes strictly (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF); see printable.h.
#include "printable.h"

#include <cstddef>
#include <cstdint>

namespace slm::cli {
namespace {

struct Character {
  uint32_t code;
  size_t bytes;  // 0: not UTF-8
};

Character First(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || s.size() < n) return {0, 0};
  uint32_t code = lead & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  if (overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return {0, 0};
  return {code, n};
}

bool IsControl(uint32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }
bool TurnsDirection(uint32_t c) { return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069); }

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = First(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Printable(std::string_view text, Show how) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = First(text);
    const bool layout = (code == '\n' || code == '\t') && how != Show::kLine;
    if (bytes == 0) out += "\xef\xbf\xbd";
    else if (layout || (!IsControl(code) && (how == Show::kStream || !TurnsDirection(code)))) out += text.substr(0, bytes);
    else if (how != Show::kStream) out += ' ';
    text.remove_prefix(bytes ? bytes : 1);
  }
  return out;
}

}  // namespace slm::cli
