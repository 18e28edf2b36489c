// See tokenizer_json.h. The order of a SentencePiece vocabulary's merges is transformers' (convert_slow_tokenizer): of every way to
// cut a piece in two known ones, by score, then by the lengths of both parts in characters, largest first.
#include "text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "slm_text.h"
#include "text/rust_error.h"

namespace slm::text {
namespace {
using nlohmann::ordered_json;

constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4;
constexpr const char* kSpaceMark = "\u2581";

int32_t KindOf(const TokenizerParts& p, size_t id) { return p.kinds.empty() ? kNormal : p.kinds[id]; }
bool IsControl(const TokenizerParts& p, size_t id) {
  const int32_t kind = KindOf(p, id);
  const auto declared = static_cast<TokenId>(id);
  return kind == kControl || kind == kUnknown || declared == p.bos || declared == p.eos;
}

ordered_json AddedTokens(const TokenizerParts& p) {
  ordered_json list = ordered_json::array();
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    const bool control = IsControl(p, id);
    if (!control && KindOf(p, id) != kUser) continue;
    list.push_back({{"id", id},
                    {"content", p.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", control}});
  }
  return list;
}

// The begin token before every text, or nothing.
ordered_json PostProcessor(const TokenizerParts& p, bool add_bos) {
  if (!add_bos || p.bos < 0 || static_cast<size_t>(p.bos) >= p.tokens.size()) return nullptr;
  const std::string bos(p.tokens[static_cast<size_t>(p.bos)]);
  const ordered_json begin = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const ordered_json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return {{"type", "TemplateProcessing"},
          {"single", {begin, first}},
          {"pair", {begin, first, begin, second}},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {p.bos}}, {"tokens", {bos}}}}}}};
}

using Ids = std::unordered_map<std::string_view, size_t>;

// Ends of the characters of a UTF-8 text, the last one's left out.
std::vector<size_t> InnerEnds(std::string_view s) {
  std::vector<size_t> ends;
  for (size_t i = 1; i < s.size(); ++i)
    if ((static_cast<unsigned char>(s[i]) & 0xc0) != 0x80) ends.push_back(i);
  return ends;
}

ordered_json MergesByScore(const TokenizerParts& p, const Ids& ids) {
  struct Merge {
    std::string_view left, right;
    float score;
    size_t left_length, right_length;
  };
  std::vector<Merge> all;
  for (size_t id = 0; id < p.tokens.size(); ++id) {
    const std::string_view piece = p.tokens[id];
    const std::vector<size_t> ends = InnerEnds(piece);
    const size_t begin = all.size();
    for (size_t i = 0; i < ends.size(); ++i) {
      const std::string_view left = piece.substr(0, ends[i]), right = piece.substr(ends[i]);
      if (ids.contains(left) && ids.contains(right)) all.push_back({left, right, p.scores[id], i + 1, ends.size() - i});
    }
    std::sort(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end(), [&](const Merge& a, const Merge& b) {
      return std::pair(ids.at(a.left), ids.at(a.right)) < std::pair(ids.at(b.left), ids.at(b.right));
    });
  }
  std::stable_sort(all.begin(), all.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left_length, a.right_length) > std::tuple(b.score, b.left_length, b.right_length);
  });
  ordered_json list = ordered_json::array();
  for (const Merge& m : all) list.push_back({m.left, m.right});
  return list;
}

// "left right", cut at the space that leaves two tokens: pieces may hold a space themselves.
Result<ordered_json> ListedMerges(const TokenizerParts& p, const Ids& ids) {
  ordered_json list = ordered_json::array();
  for (const std::string_view m : p.merges) {
    size_t at = m.find(' ', 1);
    while (at != m.npos && !(ids.contains(m.substr(0, at)) && ids.contains(m.substr(at + 1)))) at = m.find(' ', at + 1);
    if (at == m.npos)
      return Error(Code::kCorrupt, "tokenizer: merge '" + std::string(m) + "' is not of two tokens", "convert the model again");
    list.push_back({m.substr(0, at), m.substr(at + 1)});
  }
  return list;
}

void AppendBytes(void* context, const void* data, size_t n) {
  static_cast<std::string*>(context)->append(static_cast<const char*>(data), n);
}

// What sets the two kinds apart.
struct Steps {
  ordered_json normalizer, pre_tokenizer, decoder;
  bool add_bos = true, byte_fallback = false, ignore_merges = false;
  ordered_json unknown = nullptr;
};

Result<Steps> ByteLevelSteps(const TokenizerParts& p) {
  std::string text;
  if (!slm_pre_json(p.pre.data(), p.pre.size(), AppendBytes, &text))
    return LastRustError(Code::kUnsupported, "export from the Hugging Face folder").At("tokenizer");
  const ordered_json rules = ordered_json::parse(text);
  Steps s;
  if (rules["nfc"].get<bool>()) s.normalizer = {{"type", "NFC"}};
  s.pre_tokenizer = rules["pre_tokenizer"];
  s.decoder = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  s.add_bos = p.add_bos.value_or(rules["add_bos"].get<bool>());
  s.ignore_merges = rules["ignore_merges"].get<bool>();
  return s;
}

Steps SentencePieceSteps(const TokenizerParts& p) {
  Steps s;
  const bool prefix = p.add_space_prefix.value_or(true);
  const ordered_json mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
  if (prefix) s.normalizer = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpaceMark}}, mark}}};
  else s.normalizer = mark;
  ordered_json decoders = {
      {{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}}, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  s.decoder = {{"type", "Sequence"}, {"decoders", decoders}};
  s.add_bos = p.add_bos.value_or(true);
  s.byte_fallback = true;
  const auto unknown = static_cast<size_t>(p.unk == kNoToken ? 0 : p.unk);
  if (unknown < p.tokens.size()) s.unknown = p.tokens[unknown];
  return s;
}

}  // namespace

Result<std::string> TokenizerJson(const TokenizerParts& p) {
  const bool pieces = p.model == "llama";
  if (!pieces && p.model != "gpt2")
    return Error(Code::kUnsupported, "tokenizer: a vocabulary of kind '" + std::string(p.model) + "' has no form as tokenizer.json here",
                 "export from the Hugging Face folder");
  if (pieces && p.merges.empty() && p.scores.size() != p.tokens.size())
    return Error(Code::kCorrupt,
                 "tokenizer: " + std::to_string(p.scores.size()) + " scores for " + std::to_string(p.tokens.size()) + " tokens",
                 "convert the model again");
  Ids ids;
  ids.reserve(p.tokens.size());
  for (size_t id = 0; id < p.tokens.size(); ++id) ids.emplace(p.tokens[id], id);
  Steps s;
  if (pieces) {
    s = SentencePieceSteps(p);
  } else {
    SLM_ASSIGN_OR_RETURN(s, ByteLevelSteps(p));
  }
  ordered_json merges;
  if (pieces && p.merges.empty()) {
    merges = MergesByScore(p, ids);
  } else {
    SLM_ASSIGN_OR_RETURN(merges, ListedMerges(p, ids));
  }
  ordered_json vocabulary = ordered_json::object();
  auto& entries =
      vocabulary.get_ref<ordered_json::object_t&>();  // pushed as they come: looking for each name first would take quadratic time
  for (size_t id = 0; id < p.tokens.size(); ++id)
    if (ids.at(p.tokens[id]) == id) entries.push_back({std::string(p.tokens[id]), id});
  const ordered_json out = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", AddedTokens(p)},
                            {"normalizer", s.normalizer},
                            {"pre_tokenizer", s.pre_tokenizer},
                            {"post_processor", PostProcessor(p, s.add_bos)},
                            {"decoder", s.decoder},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", s.unknown},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", pieces},
                              {"byte_fallback", s.byte_fallback},
                              {"ignore_merges", s.ignore_merges},
                              {"vocab", std::move(vocabulary)},
                              {"merges", std::move(merges)}}}};
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace slm::text
