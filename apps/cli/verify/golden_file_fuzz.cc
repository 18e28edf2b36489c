// Any bytes as a file of golden answers: an error, or a file that is the same when it is written and read again.
#include <cstdint>
#include <cstdlib>

#include "verify/golden_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = slm::cli::ParseGolden({reinterpret_cast<const char*>(data), size});
  if (!file.ok()) return 0;
  const std::string text = slm::cli::GoldenText(file.value());
  const auto again = slm::cli::ParseGolden(text);
  if (!again.ok() || slm::cli::GoldenText(again.value()) != text) std::abort();
  return 0;
}
