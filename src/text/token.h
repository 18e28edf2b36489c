// The number of a token, the currency between text and decode.
#pragma once
#include <cstddef>
#include <cstdint>

namespace slm::text {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

// Bytes [begin, end) of a text in which control spellings are ordinary characters.
struct PlainRange {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace slm::text
