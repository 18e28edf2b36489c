// tokenizer.model: SentencePiece's ModelProto, read far enough to build a tokenizer.
//
// Why own code: libsentencepiece would bring a second tokenizer; five fields of a protobuf are needed. Source: message
// definitions in sentencepiece_model.proto (google/sentencepiece, Apache-2.0), wire format of the protobuf documentation.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace slm::text {

// Views into the bytes that were read.
struct SentencePieceModel {
  enum class Kind : uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  Kind kind = Kind::kUnigram;
  std::vector<std::string_view> pieces;
  std::vector<float> scores;
  std::vector<int32_t> types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte: GGUF's numbers are these
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  std::string_view charsmap;
  int32_t unk = 0, bos = 1, eos = 2, pad = -1;
};

// Errors: kCorrupt with the byte offset. Every length is checked against the bytes that are left.
Result<SentencePieceModel> ReadSentencePiece(std::string_view bytes);

}  // namespace slm::text
