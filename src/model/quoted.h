// Names and values out of a file, made fit for a message: a file must not be able to write control characters, half a
// UTF-8 character or a megabyte onto a terminal or into a log.
#pragma once
#include <string>
#include <string_view>

namespace slm::model {

// `text` between double quotes; bytes outside printable ASCII as \xNN; cut after 80 bytes with "…".
std::string Quoted(std::string_view text);

// `text` as valid UTF-8 of at most `limit` bytes: bad bytes become U+FFFD, a cut is marked with "…".
std::string PrintableUtf8(std::string_view text, size_t limit);

}  // namespace slm::model
