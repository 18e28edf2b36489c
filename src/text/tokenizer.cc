// The C++ face of the Rust tokenizer: pointers, ids, ranges. Loading older folders is pieces.cc.
#include "text/tokenizer.h"

#include <algorithm>
#include <limits>

#include "slm_text.h"
#include "text/rust_error.h"
#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace slm::text {
namespace {

constexpr const char* kLoadHint = "use the model's own tokenizer files; re-download or re-convert them";

// Spellings that end an answer in the chat formats in use. A file names one end token; the format often has two.
constexpr std::string_view kEndSpellings[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|return|>",
    "<|call|>",
    "<|eot|>",
    "<|end_of_turn|>",
    "<｜end▁of▁sentence｜>",
    "[EOT]",
    "<|END_OF_TURN_TOKEN|>",
};

int Flag(const std::optional<bool>& flag) { return flag ? static_cast<int>(*flag) : -1; }

void AppendIds(void* context, const void* data, size_t n) {
  auto* ids = static_cast<std::vector<TokenId>*>(context);
  const auto* first = static_cast<const uint32_t*>(data);
  ids->insert(ids->end(), first, first + n);
}

Error EncodeError() {
  Error error = LastRustError(Code::kLimit, "the text defeats the tokenizer's pattern; split it");
  const std::string& m = error.message();
  const bool file = m.starts_with("normalizer:") || m.find("Missing [UNK]") != m.npos || m.find("`unk_id` is missing") != m.npos;
  return (file ? Error(Code::kCorrupt, m, kLoadHint) : std::move(error)).At("encode");
}

}  // namespace

void Tokenizer::Free::operator()(slm_tok* tok) const { slm_tok_free(tok); }

Tokenizer::Tokenizer(slm_tok* tok, TokenId eot, TokenId eom) : tok_(tok) {
  slm_tok_facts_t facts;
  SLM_ASSERT(slm_tok_facts(tok, &facts));
  flags_ = facts.flags;
  n_vocab_ = static_cast<int>(facts.n_vocab);  // at most 2^22
  strip_leading_ = facts.strip_leading;
  std::copy(std::begin(facts.ids), std::end(facts.ids), ids_);
  prefix_.assign(facts.prefix, facts.prefix + facts.n_prefix);
  suffix_.assign(facts.suffix, facts.suffix + facts.n_suffix);
  for (TokenId id = 0; id < n_vocab_; ++id) max_token_bytes_ = std::max(max_token_bytes_, TokenBytes(id).size());
  const auto add_end = [this](TokenId id) {
    if (id >= 0 && id < n_vocab_ && !IsEnd(id)) end_ids_.push_back(id);
  };
  for (TokenId id : {eos(), eot, eom}) add_end(id);
  for (std::string_view spelling : kEndSpellings) {
    if (auto id = FindToken(spelling); id && IsSpecial(*id)) add_end(*id);
  }
}

Result<Tokenizer> Tokenizer::FromParts(const TokenizerParts& parts) {
  const auto wrong_count = [&](const char* what, size_t n) {
    return Error(Code::kCorrupt,
                 std::string("tokenizer: ") + std::to_string(n) + " " + what + " for " + std::to_string(parts.tokens.size()) + " tokens",
                 kLoadHint);
  };
  if (!parts.kinds.empty() && parts.kinds.size() != parts.tokens.size()) return wrong_count("token types", parts.kinds.size());
  if (!parts.scores.empty() && parts.scores.size() != parts.tokens.size()) return wrong_count("scores", parts.scores.size());
  const bool by_score = parts.model == "t5" || (parts.model == "llama" && parts.merges.empty());
  if (by_score && parts.scores.empty()) return wrong_count("scores", 0);
  slm_parts* building = slm_parts_new(parts.model.data(), parts.model.size(), parts.tokens.size(), parts.merges.size());
  const auto fail = [&] {
    Error error = LastRustError(Code::kCorrupt, kLoadHint).At("tokenizer");
    slm_parts_free(building);
    return error;
  };
  if (building == nullptr) return fail();
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    const std::string_view t = parts.tokens[i];
    if (!slm_parts_token(building, t.data(), t.size(), parts.kinds.empty() ? 1 : parts.kinds[i],
                         parts.scores.empty() ? 0.f : parts.scores[i]))
      return fail();
  }
  for (std::string_view m : parts.merges) {
    if (!slm_parts_merge(building, m.data(), m.size())) return fail();
  }
  const slm_parts_options options = {.pre = parts.pre.data(),
                                     .n_pre = parts.pre.size(),
                                     .charsmap = parts.charsmap.data(),
                                     .n_charsmap = parts.charsmap.size(),
                                     .add_bos = Flag(parts.add_bos),
                                     .add_eos = Flag(parts.add_eos),
                                     .add_space_prefix = Flag(parts.add_space_prefix),
                                     .remove_extra_whitespaces = Flag(parts.remove_extra_whitespaces),
                                     .bos = parts.bos,
                                     .eos = parts.eos,
                                     .unk = parts.unk,
                                     .pad = parts.pad,
                                     .sep = parts.sep,
                                     .cls = parts.cls};
  slm_tok* tok = slm_parts_finish(building, &options);
  if (tok == nullptr) return LastRustError(Code::kCorrupt, kLoadHint).At("tokenizer");
  return Tokenizer(tok, parts.eot, parts.eom);
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json, std::string_view config) {
  slm_tok* tok = slm_tok_from_json(json.data(), json.size(), config.data(), config.size());
  if (tok == nullptr) return LastRustError(Code::kCorrupt, kLoadHint).At("tokenizer");
  return Tokenizer(tok, kNoToken, kNoToken);
}

Result<std::vector<TokenId>> Tokenizer::EncodePrompt(std::string_view text, std::span<const PlainRange> plain, AddBosEos add) const {
  static_assert(sizeof(PlainRange) == 2 * sizeof(size_t));
  std::vector<TokenId> ids;
  ids.reserve(prefix_.size() + suffix_.size() + text.size() / 3 + 8);
  if (add == AddBosEos::kYes) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
  std::string replaced;
  std::vector<PlainRange> moved;
  if (!IsUtf8(text)) {
    // U+FFFD is longer than the bytes it replaces: move the ranges along.
    size_t done = 0;
    for (PlainRange r : plain) {
      replaced += ReplaceIllFormed(text.substr(done, r.begin - done));
      const size_t begin = replaced.size();
      replaced += ReplaceIllFormed(text.substr(r.begin, r.end - r.begin));
      moved.push_back({begin, replaced.size()});
      done = r.end;
    }
    replaced += ReplaceIllFormed(text.substr(done));
    text = replaced;
    plain = moved;
  }
  const bool ok =
      slm_tok_encode(tok_.get(), text.data(), text.size(), plain.empty() ? nullptr : &plain[0].begin, plain.size(), AppendIds, &ids);
  if (!ok) return EncodeError();
  if (add == AddBosEos::kYes) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, SpecialTokens special, AddBosEos add) const {
  const PlainRange all = {0, text.size()};
  const bool plain = special == SpecialTokens::kPlain && !text.empty();
  return EncodePrompt(text, plain ? std::span(&all, 1) : std::span<const PlainRange>(), add);
}

Result<std::vector<TokenId>> Tokenizer::EncodeSegments(std::span<const Segment> segments, AddBosEos add) const {
  std::string text;
  std::vector<PlainRange> plain;
  for (const Segment& s : segments) {
    if (s.special == SpecialTokens::kPlain && !s.text.empty()) plain.push_back({text.size(), text.size() + s.text.size()});
    text += s.text;
  }
  return EncodePrompt(text, plain, add);
}

std::string Tokenizer::Decode(std::span<const TokenId> ids) const {
  StreamDecoder decoder(*this);
  std::string text;
  for (TokenId id : ids) text += decoder.Push(id);
  text += decoder.Flush();
  return text;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0) return {};
  size_t n = 0;
  const char* data = slm_tok_bytes(tok_.get(), static_cast<uint32_t>(id), &n);
  return {data, n};
}

bool Tokenizer::IsEnd(TokenId id) const { return std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end(); }

std::optional<TokenId> Tokenizer::FindToken(std::string_view text) const {
  const TokenId id = slm_tok_find(tok_.get(), text.data(), text.size());
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace slm::text
