// Tokenizer: text to token ids and what every id stands for.
//
// Why here: the model's ids must be Hugging Face's to the last one. Normalizers, pre-tokenizers and post-processors are the
// `tokenizers` crate's; BPE runs on compact tables of ours (rust/slm_text), which the tests hold equal to the crate's.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/token.h"

struct slm_tok;  // rust/slm_text

namespace slm::text {

// Are spellings of control tokens ("<|im_end|>") in the text those tokens, or ordinary characters? Tokens that are added but
// not control tokens (Qwen's "<think>") are always parsed, as Hugging Face and llama.cpp do.
enum class SpecialTokens : uint8_t { kParse, kPlain };
// Put the model's begin/end tokens round the text, as the file asks for?
enum class AddBosEos : uint8_t { kNo, kYes };

// A vocabulary as a GGUF file carries it. Views must live until FromParts returns; nothing is kept.
struct TokenizerParts {
  std::string_view model;                    // tokenizer.ggml.model: gpt2, llama, gemma4, bert, t5
  std::string_view pre;                      // tokenizer.ggml.pre; empty: "default"
  std::span<const std::string_view> tokens;  // by id
  std::span<const int32_t> kinds;            // tokenizer.ggml.token_type; empty: all normal
  std::span<const float> scores;             // empty, or one a token; needed for "llama" without merges and for "t5"
  std::span<const std::string_view> merges;  // "left right", best first; needed for gpt2, gemma4
  std::string_view charsmap;                 // tokenizer.ggml.precompiled_charsmap ("t5")
  // Unset: the file does not say, the kind's default holds.
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  // kNoToken: the file does not say. eot, eom: further tokens that end an answer.
  TokenId bos = kNoToken, eos = kNoToken, unk = kNoToken, pad = kNoToken, sep = kNoToken, cls = kNoToken, eot = kNoToken, eom = kNoToken;
};

// The files of an older HF folder without tokenizer.json. Empty: absent.
struct TokenizerPieces {
  std::string_view vocab_json, merges_txt;  // byte-level BPE
  std::string_view sentencepiece;           // tokenizer.model (BPE or Unigram)
  std::string_view config_json;             // tokenizer_config.json: class, added tokens, begin and end tokens
  std::string_view added_tokens_json;       // added_tokens.json: {"text": id}
};

struct Segment {
  std::string_view text;
  SpecialTokens special = SpecialTokens::kPlain;
};

class Tokenizer {
 public:
  // Errors of all three: kCorrupt (what, where), kUnsupported (unknown kind or pre-tokenizer; the known ones are listed).
  static Result<Tokenizer> FromParts(const TokenizerParts& parts);
  // The text of tokenizer.json and, for the names of begin and end tokens, tokenizer_config.json (may be empty).
  static Result<Tokenizer> FromJson(std::string_view tokenizer_json, std::string_view tokenizer_config_json = {});
  static Result<Tokenizer> FromPieces(const TokenizerPieces& pieces);

  // Ids of `text`. Invalid UTF-8 is read as U+FFFD, one for each maximal ill-formed part (WHATWG Encoding, section 4.1).
  // Errors: kInternal, and kLimit for a pattern that backtracks without end. Thread-safe, as all const functions here.
  Result<std::vector<TokenId>> Encode(std::string_view text, SpecialTokens special, AddBosEos add) const;
  // The segments' texts as one text; control spellings count only inside kParse segments and never across into a kPlain one.
  // Ids equal Encode(joined, kParse) whenever no plain segment spells a control token.
  Result<std::vector<TokenId>> EncodeSegments(std::span<const Segment> segments, AddBosEos add) const;
  // The same with the plain bytes given as sorted, disjoint ranges of `text` (what ChatTemplate::RenderPrompt returns).
  Result<std::vector<TokenId>> EncodePrompt(std::string_view text, std::span<const PlainRange> plain, AddBosEos add) const;

  // Text of `ids`: control tokens skipped, ill-formed bytes as U+FFFD, SentencePiece's added first space taken off.
  std::string Decode(std::span<const TokenId> ids) const;

  // Bytes an id stands for (a fraction of a character is possible; a control token gives its spelling). Empty for an id that
  // does not exist. Borrowed from the tokenizer, no allocation.
  std::string_view TokenBytes(TokenId id) const;
  // Control tokens: skipped in output, never made from plain text.
  bool IsSpecial(TokenId id) const { return Flags(id) & 1; }
  // Tokens that stand for one raw byte (<0x0A>).
  bool IsByte(TokenId id) const { return Flags(id) & 2; }
  // One past the largest id. Logits may be wider.
  int VocabSize() const { return n_vocab_; }
  TokenId bos() const { return ids_[0]; }
  TokenId eos() const { return ids_[1]; }
  TokenId unk() const { return ids_[2]; }
  TokenId pad() const { return ids_[3]; }
  // What AddBosEos::kYes puts before and after a text.
  std::span<const TokenId> prefix() const { return prefix_; }
  std::span<const TokenId> suffix() const { return suffix_; }
  // Ids that end an answer: eos, the file's eot and eom, and control tokens with a well-known end-of-turn spelling.
  std::span<const TokenId> end_ids() const { return end_ids_; }
  bool IsEnd(TokenId id) const;
  // Id whose spelling in the vocabulary is exactly `text`.
  std::optional<TokenId> FindToken(std::string_view text) const;
  // Longest TokenBytes, in bytes.
  size_t MaxTokenBytes() const { return max_token_bytes_; }
  // Spaces that decoding takes off the front of a text.
  size_t StripLeading() const { return strip_leading_; }

  const slm_tok* handle() const { return tok_.get(); }  // for the rest of this room

 private:
  struct Free {
    void operator()(slm_tok* tok) const;
  };
  Tokenizer(slm_tok* tok, TokenId eot, TokenId eom);
  uint8_t Flags(TokenId id) const { return id >= 0 && id < n_vocab_ ? flags_[id] : 0; }

  std::unique_ptr<slm_tok, Free> tok_;
  const uint8_t* flags_ = nullptr;  // [n_vocab_], owned by tok_
  int n_vocab_ = 0;
  size_t max_token_bytes_ = 0, strip_leading_ = 0;
  TokenId ids_[4] = {kNoToken, kNoToken, kNoToken, kNoToken};
  std::vector<TokenId> prefix_, suffix_, end_ids_;
};

}  // namespace slm::text
