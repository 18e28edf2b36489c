// Any bytes as tokenizer.json: an error or a tokenizer that encodes and decodes without a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  auto made = slm::text::Tokenizer::FromJson(json);
  if (!made.ok()) return 0;
  auto ids = made.value().Encode(json.substr(0, 256), slm::text::SpecialTokens::kParse, slm::text::AddBosEos::kYes);
  if (ids.ok()) (void)made.value().Decode(ids.value());
  return 0;
}
