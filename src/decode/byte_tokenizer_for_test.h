// A tokenizer whose ids are bytes, for tests: token i < 256 is the byte i, kByteEos a control token. Made from parts as a GGUF
// file carries them (byte-level BPE), so the real text room runs.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "text/text.h"

namespace slm::decode {

inline constexpr int32_t kByteEos = 256;
inline constexpr int kByteVocab = 258;  // 257: "ab", because a byte-level BPE has at least one merge

// The visible character that byte-level BPE writes for a byte (GPT-2, encoder.py: printable Latin-1 as itself, the rest from
// U+0100 on).
inline std::string ByteSpelling(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff); };
  int code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

inline text::Tokenizer ByteTokenizer() {
  std::vector<std::string> spellings;
  for (int b = 0; b < 256; ++b) spellings.push_back(ByteSpelling(b));
  spellings.push_back("<|end|>");
  spellings.push_back("ab");
  const std::vector<std::string_view> tokens(spellings.begin(), spellings.end());
  std::vector<int32_t> kinds(kByteVocab, 1);  // normal
  kinds[kByteEos] = 3;                        // control
  const std::string_view merges[] = {"a b"};
  text::TokenizerParts parts;
  parts.model = "gpt2";
  parts.pre = "gpt-2";
  parts.tokens = tokens;
  parts.kinds = kinds;
  parts.merges = merges;
  parts.eos = kByteEos;
  auto made = text::Tokenizer::FromParts(parts);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return made.Take();
}

}  // namespace slm::decode
