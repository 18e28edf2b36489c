// A GGUF vocabulary as the tokenizer.json that Hugging Face's `tokenizers` and the runtimes built on its format read.
#pragma once
#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace slm::text {

// Ids, pieces and merges as FromParts has them. Covers the kinds "gpt2" (byte-level BPE) and "llama" (SentencePiece BPE; the list of merges
// that the format needs is made from the scores, seconds for 262k pieces). Errors: kUnsupported (another kind; an unknown
// pre-tokenizer), kCorrupt (counts that do not match).
Result<std::string> TokenizerJson(const TokenizerParts& parts);

}  // namespace slm::text
