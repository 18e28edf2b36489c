// The JSON header of a safetensors file as a list of rows, before offsets are checked. Internal to safetensors/.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace slm::model::safetensors {

struct HeaderRow {
  std::string name, dtype;
  std::vector<uint64_t> shape, offsets;
};

struct Header {
  std::vector<HeaderRow> rows;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads the header as a stream of events, so that a hostile one never becomes a tree in memory. Errors: kCorrupt.
Result<Header> ParseHeader(std::string_view json);

}  // namespace slm::model::safetensors
