// Any bytes as tokenizer.model.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slm::text::TokenizerPieces pieces;
  pieces.sentencepiece = std::string_view(reinterpret_cast<const char*>(data), size);
  auto made = slm::text::Tokenizer::FromPieces(pieces);
  if (made.ok()) (void)made.value().Encode("a b", slm::text::SpecialTokens::kParse, slm::text::AddBosEos::kYes).ok();
  return 0;
}
