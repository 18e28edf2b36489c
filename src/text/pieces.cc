// Older HF folders: vocab.json with merges.txt, or tokenizer.model, plus the tokens that tokenizer_config.json and
// added_tokens.json add. Both become TokenizerParts, so that one path builds every tokenizer.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "text/sentencepiece.h"
#include "text/tokenizer.h"

namespace slm::text {
namespace {

using nlohmann::json;
constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;
constexpr size_t kMaxIds = size_t{1} << 22;

// Storage behind the views of TokenizerParts.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  std::vector<float> scores;

  // Sets id `id`; grows with unused holes.
  Status Set(uint64_t id, std::string token, int32_t kind) {
    if (id >= kMaxIds)
      return Error(Code::kCorrupt,
                   "token id " + std::to_string(id) + " of \"" + token + "\" is past the limit of " + std::to_string(kMaxIds));
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      kinds.resize(id + 1, kUnused);
      scores.resize(id + 1, 0.f);
    }
    tokens[id] = std::move(token);
    kinds[id] = kind;
    return Ok();
  }
  TokenId Find(std::string_view token) const {
    const auto it = std::find(tokens.begin(), tokens.end(), token);
    return it == tokens.end() || token.empty() ? kNoToken : static_cast<TokenId>(it - tokens.begin());
  }
};

Result<json> Parse(std::string_view name, std::string_view text) {
  if (text.empty()) return json::object();
  json parsed = json::parse(text, nullptr, false);
  if (parsed.is_object()) return parsed;
  return Error(Code::kCorrupt, std::string(name) + ": not a JSON object", "download the file again");
}

// "bos_token": "<s>" or {"content": "<s>", …}
std::string Named(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object()) {
    const auto content = it->find("content");
    if (content != it->end() && content->is_string()) return content->get<std::string>();
  }
  return {};
}

std::optional<bool> Switch(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_boolean() ? std::optional(it->get<bool>()) : std::nullopt;
}

Status AddConfigured(const json& config, const json& added, Vocabulary& v) {
  for (const auto& [token, id] : added.items()) {
    if (!id.is_number_unsigned()) return Error(Code::kCorrupt, "added_tokens.json: the id of \"" + token + "\" is not a number");
    SLM_RETURN_IF_ERROR(v.Set(id.get<uint64_t>(), token, kUserDefined));
  }
  const auto table = config.find("added_tokens_decoder");
  if (table != config.end() && table->is_object()) {
    for (const auto& [key, entry] : table->items()) {
      const std::string content = entry.is_object() ? Named(json{{"t", entry}}, "t") : std::string();
      if (content.empty() || key.empty() || key.size() > 9 ||
          !std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }))
        return Error(Code::kCorrupt, "tokenizer_config.json: added_tokens_decoder: bad entry \"" + key + "\"");
      const bool special = Switch(entry, "special").value_or(false);
      SLM_RETURN_IF_ERROR(v.Set(std::stoul(key), content, special ? kControl : kUserDefined));
    }
  }
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (const TokenId id = v.Find(Named(config, key)); id >= 0) v.kinds[static_cast<size_t>(id)] = kControl;
  }
  return Ok();
}

// The pre-tokenizer of a byte-level class. GPT-2's pattern is what the class of that name and all its kin use.
std::string_view PreOfClass(const std::string& name) { return name.starts_with("Qwen2Tokenizer") ? "qwen2" : "gpt-2"; }

Result<Tokenizer> Build(const Vocabulary& v, TokenizerParts parts, const json& config) {
  const std::vector<std::string_view> views(v.tokens.begin(), v.tokens.end());
  parts.tokens = views;
  parts.kinds = v.kinds;
  parts.scores = v.scores;
  const auto override_id = [&](const char* key, TokenId& id) {
    if (const TokenId named = v.Find(Named(config, key)); named >= 0) id = named;
  };
  override_id("bos_token", parts.bos);
  override_id("eos_token", parts.eos);
  override_id("unk_token", parts.unk);
  override_id("pad_token", parts.pad);
  if (auto s = Switch(config, "add_bos_token")) parts.add_bos = s;
  if (auto s = Switch(config, "add_eos_token")) parts.add_eos = s;
  return Tokenizer::FromParts(parts);
}

Result<Tokenizer> FromVocabAndMerges(const TokenizerPieces& p, const json& config, const json& added) {
  SLM_ASSIGN_OR_RETURN(const json vocab, Parse("vocab.json", p.vocab_json));
  Vocabulary v;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_unsigned()) return Error(Code::kCorrupt, "vocab.json: the id of \"" + token + "\" is not a number");
    SLM_RETURN_IF_ERROR(v.Set(id.get<uint64_t>(), token, kNormal));
  }
  SLM_RETURN_IF_ERROR(AddConfigured(config, added, v));
  std::vector<std::string_view> merges;
  for (std::string_view rest = p.merges_txt; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty() && !(merges.empty() && line.starts_with("#version"))) merges.push_back(line);
  }
  const auto name = config.find("tokenizer_class");
  TokenizerParts parts;
  parts.model = "gpt2";
  parts.pre = PreOfClass(name != config.end() && name->is_string() ? name->get<std::string>() : "");
  parts.merges = merges;
  return Build(v, parts, config);
}

Result<Tokenizer> FromSentencePiece(const TokenizerPieces& p, const json& config, const json& added) {
  SLM_ASSIGN_OR_RETURN(const SentencePieceModel sp, ReadSentencePiece(p.sentencepiece));
  using Kind = SentencePieceModel::Kind;
  if (sp.kind != Kind::kBpe && sp.kind != Kind::kUnigram)
    return Error(Code::kUnsupported, "tokenizer.model: a word or character model", "known: BPE, Unigram");
  Vocabulary v;
  v.tokens.assign(sp.pieces.begin(), sp.pieces.end());
  v.kinds = sp.types;
  v.scores = sp.scores;
  SLM_RETURN_IF_ERROR(AddConfigured(config, added, v));
  TokenizerParts parts;
  parts.model = sp.kind == Kind::kBpe ? "llama" : "t5";
  parts.charsmap = sp.kind == Kind::kUnigram ? sp.charsmap : std::string_view();
  parts.add_space_prefix = Switch(config, "add_prefix_space").value_or(sp.add_dummy_prefix);
  parts.remove_extra_whitespaces = sp.remove_extra_whitespaces;
  parts.bos = sp.bos;
  parts.eos = sp.eos;
  parts.unk = sp.unk;
  parts.pad = sp.pad;
  return Build(v, parts, config);
}

}  // namespace

Result<Tokenizer> Tokenizer::FromPieces(const TokenizerPieces& p) {
  SLM_ASSIGN_OR_RETURN(const json config, Parse("tokenizer_config.json", p.config_json));
  SLM_ASSIGN_OR_RETURN(const json added, Parse("added_tokens.json", p.added_tokens_json));
  if (!p.vocab_json.empty() && !p.merges_txt.empty()) return FromVocabAndMerges(p, config, added);
  if (!p.sentencepiece.empty()) return FromSentencePiece(p, config, added);
  return Error(Code::kNotFound, "tokenizer: neither tokenizer.json, nor vocab.json with merges.txt, nor tokenizer.model",
               "download the model's tokenizer files too");
}

}  // namespace slm::text
