// See vocabulary.h. Source of the fields: tokenizer.json as the `tokenizers` crate writes it; the meaning of GGUF's lists: ggml's
// docs/gguf.md.
#include "text/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/sentencepiece.h"

namespace slm::text {
namespace {

using nlohmann::json;
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
constexpr uint64_t kMostIds = uint64_t{1} << 22;

// Sets the families apart: case of contractions, runs of digits, letters with marks, breaks after punctuation, scripts, runs of spaces.
constexpr std::string_view kProbe =
    "Hello, I'm HERE'S the 3.14159 and 20231 ‘x’ test!!\n\n  def f(x):\n\treturn x_1+2  # don't  WE'LL\r\n"
    "Ünïcödé Éte\u0301 naïve 東京タワー 한국어 текст Ελληνικά "
    "العربية हिन्दी 😀👍🏽 ١٢٣ ½ ² "
    "a/b//c ``code`` <tag> {k: [1, 22, 333, 4444]}   end\n \n\n x";

Error Corrupt(std::string what) {
  return Error(Code::kCorrupt, "tokenizer.json: " + std::move(what), "use the model's own tokenizer files; download them again");
}

Status Set(Vocabulary* v, uint64_t id, std::string token, int32_t kind) {
  if (id >= kMostIds) return Corrupt("token id " + std::to_string(id));
  if (id >= v->tokens.size()) {
    v->tokens.resize(id + 1);
    v->kinds.resize(id + 1, kUnused);
  }
  v->tokens[id] = std::move(token);
  v->kinds[id] = kind;
  return Ok();
}

bool IsByteToken(const std::string& t) {
  unsigned value = 0;
  return t.size() == 6 && t.starts_with("<0x") && t.back() == '>' && std::from_chars(&t[3], &t[5], value, 16).ptr == &t[5];
}

Status ReadTokens(const json& doc, const json& model, bool byte_fallback, Vocabulary* v) {
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object()) return Corrupt("model.vocab is no object");
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_unsigned()) return Corrupt("the id of a token is no number");
    SLM_RETURN_IF_ERROR(Set(v, id.get<uint64_t>(), token, byte_fallback && IsByteToken(token) ? kByte : kNormal));
  }
  const auto added = doc.find("added_tokens");
  if (added == doc.end() || added->is_null()) return Ok();
  if (!added->is_array()) return Corrupt("added_tokens is no list");
  for (const json& t : *added) {
    const auto id = t.find("id"), content = t.find("content"), special = t.find("special");
    if (!t.is_object() || id == t.end() || !id->is_number_unsigned() || content == t.end() || !content->is_string())
      return Corrupt("an entry of added_tokens without id or content");
    const bool control = special != t.end() && special->is_boolean() && special->get<bool>();
    SLM_RETURN_IF_ERROR(Set(v, id->get<uint64_t>(), content->get<std::string>(), control ? kControl : kUserDefined));
  }
  return Ok();
}

Status ReadMerges(const json& model, Vocabulary* v) {
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) return Corrupt("model.merges is no list");
  for (const json& m : *merges) {
    const bool pair = m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string();
    if (!pair && !m.is_string()) return Corrupt("a merge that is no pair");
    v->merges.push_back(pair ? m[0].get<std::string>() + " " + m[1].get<std::string>() : m.get<std::string>());
  }
  return Ok();
}

// The merge that comes first makes the token that scores highest: the order in which SentencePiece's BPE joins pieces.
void ScoreByMerges(Vocabulary* v) {
  std::unordered_map<std::string, float> rank;
  for (size_t i = 0; i < v->merges.size(); ++i) {
    std::string joined = v->merges[i];
    const size_t space = joined.find(' ', 1);
    if (space != joined.npos) joined.erase(space, 1);
    rank.emplace(std::move(joined), -static_cast<float>(i + 1));
  }
  for (size_t id = 0; id < v->tokens.size(); ++id) {
    const auto it = rank.find(v->tokens[id]);
    v->scores.push_back(it == rank.end() ? 0.0f : it->second);
  }
}

// Scores and kinds out of tokenizer.model, where it names the same tokens.
Status TakeScores(std::string_view bytes, Vocabulary* v) {
  SLM_ASSIGN_OR_RETURN(const SentencePieceModel sp, ReadSentencePiece(bytes));
  if (sp.kind != SentencePieceModel::Kind::kBpe) return Ok();
  for (size_t id = 0; id < std::min(sp.pieces.size(), v->tokens.size()); ++id)
    if (sp.pieces[id] == v->tokens[id]) {
      v->scores[id] = sp.scores[id];
      if (v->kinds[id] != kUserDefined) v->kinds[id] = sp.types[id];
    }
  return Ok();
}

// True when the lists give the ids of `own`, for plain text and with what is put round it.
Result<bool> Agrees(const Vocabulary& v, const Tokenizer& own) {
  auto made = Tokenizer::FromParts(v.Parts());
  if (!made.ok()) return false;
  for (const std::string_view text : {kProbe, std::string_view("a"), std::string_view(" 12")}) {
    SLM_ASSIGN_OR_RETURN(const auto want, own.Encode(text, SpecialTokens::kPlain, AddBosEos::kYes));
    const auto got = made.value().Encode(text, SpecialTokens::kPlain, AddBosEos::kYes);
    if (!got.ok() || got.value() != want) return false;
  }
  return true;
}

Status Choose(const Tokenizer& own, Vocabulary* v) {
  // Names of pre-tokenizers that llama.cpp knows too, the commonest first.
  constexpr std::string_view kNames[] = {"llama-bpe",        "qwen2",     "gpt-2",  "smollm",       "gpt-4o",      "tekken",
                                         "deepseek-r1-qwen", "refact",    "falcon", "deepseek-llm", "deepseek-v3", "deepseek-coder",
                                         "default",          "command-r", "dbrx",   "mpt"};
  if (v->model == "llama") {
    for (const bool prefix : {false, true}) {
      v->add_space_prefix = prefix;
      SLM_ASSIGN_OR_RETURN(const bool same, Agrees(*v, own));
      if (same) return Ok();
    }
  } else {
    for (const std::string_view name : kNames) {
      v->pre = name;
      SLM_ASSIGN_OR_RETURN(const bool same, Agrees(*v, own));
      if (same) return Ok();
    }
  }
  return Error(Code::kUnsupported, "tokenizer.json: no vocabulary of a GGUF file gives this tokenizer's ids",
               "GGUF files can only name known pre-tokenizers; keep the folder");
}

}  // namespace

TokenizerParts Vocabulary::Parts() const {
  token_views.assign(tokens.begin(), tokens.end());
  merge_views.assign(merges.begin(), merges.end());
  TokenizerParts p;
  p.model = model;
  p.pre = pre;
  p.tokens = token_views;
  p.kinds = kinds;
  p.scores = scores;
  p.merges = merge_views;
  p.add_bos = add_bos;
  p.add_eos = add_eos;
  if (model == "llama") p.add_space_prefix = add_space_prefix;
  p.bos = bos;
  p.eos = eos;
  p.unk = unk;
  p.pad = pad;
  return p;
}

Result<Vocabulary> ReadVocabulary(std::string_view tokenizer_json, const TokenizerPieces& pieces, int n_rows) {
  if (tokenizer_json.empty())
    return Error(Code::kNotFound, "tokenizer.json is missing",
                 "load the folder with transformers once and save its tokenizer: that writes it");
  SLM_ASSIGN_OR_RETURN(const Tokenizer own, Tokenizer::FromJson(tokenizer_json, pieces.config_json));
  const json doc = json::parse(tokenizer_json, nullptr, false);
  const auto model = doc.is_object() ? doc.find("model") : doc.end();
  if (!doc.is_object() || model == doc.end() || !model->is_object()) return Corrupt("model is no object");
  const std::string type = model->value("type", "BPE");
  if (type != "BPE") return Error(Code::kUnsupported, "tokenizer.json: a model of type " + type, "a vocabulary can be written for BPE");
  const bool byte_fallback = model->contains("byte_fallback") && (*model)["byte_fallback"] == true;
  Vocabulary v;
  v.model = byte_fallback ? "llama" : "gpt2";
  SLM_RETURN_IF_ERROR(ReadTokens(doc, *model, byte_fallback, &v));
  SLM_RETURN_IF_ERROR(ReadMerges(*model, &v));
  for (uint64_t id = v.tokens.size(); id < static_cast<uint64_t>(std::max(n_rows, 0)); ++id)
    SLM_RETURN_IF_ERROR(Set(&v, id, "[PAD" + std::to_string(id) + "]", kUnused));
  for (size_t id = 0; id < v.tokens.size(); ++id)
    if (v.tokens[id].empty() && v.kinds[id] == kUnused) v.tokens[id] = "[PAD" + std::to_string(id) + "]";
  v.bos = own.bos();
  v.eos = own.eos();
  v.unk = own.unk();
  v.pad = own.pad();
  v.add_bos = !own.prefix().empty();
  v.add_eos = !own.suffix().empty();
  if (byte_fallback) {
    ScoreByMerges(&v);
    v.merges.clear();
    if (!pieces.sentencepiece.empty()) SLM_RETURN_IF_ERROR(TakeScores(pieces.sentencepiece, &v));
    if (v.unk >= 0 && static_cast<size_t>(v.unk) < v.kinds.size()) v.kinds[static_cast<size_t>(v.unk)] = kUnknown;
  }
  SLM_RETURN_IF_ERROR(Choose(own, &v));
  return v;
}

}  // namespace slm::text
