// A tokenizer as the lists that a GGUF file holds, taken out of a Hugging Face folder's files.
//
// GGUF names a pre-tokenizer where tokenizer.json spells it out. The name, and the other choices that the lists leave open, are found by
// trial: each candidate is built and must give the ids of the folder's own tokenizer on a text that sets the families apart.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/token.h"
#include "text/tokenizer.h"

namespace slm::text {

struct Vocabulary {
  std::string model, pre;           // tokenizer.ggml.model ("gpt2", "llama") and .pre; empty: "llama" has none
  std::vector<std::string> tokens;  // by id
  std::vector<int32_t> kinds;       // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<float> scores;        // "llama": one a token; else empty
  std::vector<std::string> merges;  // "gpt2": "left right", best first
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = false;  // "llama"
  TokenId bos = kNoToken, eos = kNoToken, unk = kNoToken, pad = kNoToken;
  TokenizerParts Parts() const;  // views of this; `views` is filled
  mutable std::vector<std::string_view> token_views, merge_views;
};

// From tokenizer.json, or, where it has the pieces of a SentencePiece model, with the scores of tokenizer.model. Ids past the
// vocabulary up to `n_rows` (of the embedding) become unused tokens. Errors: kNotFound (no tokenizer.json), kUnsupported (a tokenizer
// that no GGUF vocabulary gives the ids of; a model other than BPE), kCorrupt.
Result<Vocabulary> ReadVocabulary(std::string_view tokenizer_json, const TokenizerPieces& pieces, int n_rows);

}  // namespace slm::text
