// The journal beside a file that is being quantized: which tensors of it are finished, with what sum, so that a run after a kill goes on.
//
// One JSON object a line. The first names what the file will be; a line follows for each tensor once its bytes were written. A line
// that is incomplete or makes no sense ends what is believed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/quant.h"

namespace slm::cli {

struct JournalRow {
  quant::TensorReport report;
  uint64_t end = 0;    // of the tensor's data with padding, in the file
  std::string sha256;  // of the bytes from the row before (the first: from the end of the table) to `end`
};

struct Journal {
  std::string identity;  // 64 hexadecimal digits, over everything that decides the bytes
  uint64_t begin = 0;    // where the data of the first tensor begins
  std::vector<JournalRow> rows;
  std::vector<uint64_t> ends;  // of the lines, in the journal: the first line's, then a row's each
};

// The first line and a row's line, with their line ends.
std::string JournalHead(const std::string& identity, uint64_t begin);
std::string JournalLine(const JournalRow& row);

// What a journal says. An empty one and one whose only line is cut off say nothing: no identity, no rows. nullopt: this is no journal.
std::optional<Journal> ReadJournal(std::string_view text);

}  // namespace slm::cli
