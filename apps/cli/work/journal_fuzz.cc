// Any bytes as a journal: none, or rows in order that are written back as they were read.
#include <cstdint>
#include <cstdlib>

#include "work/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto journal = slm::cli::ReadJournal({reinterpret_cast<const char*>(data), size});
  if (!journal || journal->ends.empty()) return 0;
  std::string again = slm::cli::JournalHead(journal->identity, journal->begin);
  for (const auto& row : journal->rows) again += slm::cli::JournalLine(row);
  const auto second = slm::cli::ReadJournal(again);
  if (!second || second->rows.size() != journal->rows.size() || second->identity != journal->identity) std::abort();
  return 0;
}
