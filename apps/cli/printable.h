// Text of other people (files, servers, models) made safe to show: no byte of it moves a terminal's cursor, recolours it or
// turns the reading direction. Control codes after ECMA-48 (C0, C1), directions after Unicode UAX 9.
#pragma once
#include <string>
#include <string_view>

namespace slm::cli {

enum class Show : unsigned char {
  kLine,    // a message: every control code and line break becomes a space, so do marks that turn the reading direction
  kLines,   // the same, but line breaks and tabs stay
  kStream,  // a model's answer: control codes but line breaks and tabs vanish; directions stay, some languages need them
};

// UTF-8 whose offending characters are replaced as `how` says; bytes that are not UTF-8 become U+FFFD, one for each byte.
std::string Printable(std::string_view text, Show how);

// Is every byte of it part of a character?
bool IsUtf8(std::string_view text);

}  // namespace slm::cli
