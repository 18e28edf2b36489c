// The vocabulary embedded in a GGUF file (declared in config.h). Keys: ggml's docs/gguf.md, section "Tokenizer".
#include <fmt/format.h>

#include <algorithm>

#include "model/gguf/config.h"
#include "model/quoted.h"

namespace slm::model::gguf {
namespace {

constexpr const char* kPrefix = "tokenizer.ggml.";
constexpr uint64_t kMaxTokens = 1u << 24;
constexpr int64_t kControlToken = 3;  // llama.cpp's LLAMA_TOKEN_TYPE_CONTROL

// Spellings that end a turn in published chat formats, for files that name only one of a model's end tokens.
constexpr std::string_view kEndOfTurn[] = {"<|eot_id|>",      "<|im_end|>",      "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
                                           "<|end_of_text|>", "<|end_of_turn|>", "<EOT>",   "</s>",          "<eos>"};

Error Corrupt(std::string what) { return Error(Code::kCorrupt, std::move(what), "convert the model again with a current converter"); }

const Key* FindKey(const File& file, const std::string& name) {
  for (const Key& k : file.keys)
    if (k.name == name) return &k;
  return nullptr;
}

// A token id; -1 when absent.
Status ReadId(const File& file, const char* name, size_t n_tokens, int* out) {
  const std::string key = kPrefix + std::string(name);
  SLM_ASSIGN_OR_RETURN(const auto id, GetInteger(file, key));
  if (!id || *id == -1 || *id == UINT32_MAX) return Ok();  // both are written for "none"
  if (*id < 0 || static_cast<uint64_t>(*id) >= n_tokens)
    return Corrupt(fmt::format("key {} is {}, but there are {} tokens", Quoted(key), *id, n_tokens));
  *out = static_cast<int>(*id);
  return Ok();
}

Status ReadFlag(const File& file, const char* name, int* out) {
  SLM_ASSIGN_OR_RETURN(const auto flag, GetBool(file, kPrefix + std::string(name)));
  if (flag) *out = *flag ? 1 : 0;
  return Ok();
}

Status ReadLists(const File& file, TokenizerSource* t) {
  const Key* tokens = FindKey(file, "tokenizer.ggml.tokens");
  if (!tokens) return Corrupt("key \"tokenizer.ggml.tokens\" is missing");
  if (tokens->value.count == 0 || tokens->value.count > kMaxTokens)
    return Corrupt(fmt::format("a vocabulary of {} tokens", tokens->value.count));
  SLM_ASSIGN_OR_RETURN(t->tokens, StringItems(*tokens));
  if (const Key* merges = FindKey(file, "tokenizer.ggml.merges")) {
    SLM_ASSIGN_OR_RETURN(t->merges, StringItems(*merges));
    const auto splits = [](std::string_view m) { return m.find(' ', 1) != m.npos && m.find(' ', 1) + 1 < m.size(); };
    const auto bad = std::find_if_not(t->merges.begin(), t->merges.end(), splits);
    if (bad != t->merges.end()) return Corrupt("merge " + Quoted(*bad) + " has not two parts");
  }
  if (const Key* scores = FindKey(file, "tokenizer.ggml.scores")) {
    SLM_ASSIGN_OR_RETURN(t->scores, FloatItems(*scores));
    if (t->scores.size() != t->tokens.size()) return Corrupt(fmt::format("{} scores for {} tokens", t->scores.size(), t->tokens.size()));
  }
  if (const Key* types = FindKey(file, "tokenizer.ggml.token_type")) {
    SLM_ASSIGN_OR_RETURN(const std::vector<int64_t> items, IntegerItems(*types));
    if (items.size() != t->tokens.size()) return Corrupt(fmt::format("{} token types for {} tokens", items.size(), t->tokens.size()));
    t->token_types.assign(items.begin(), items.end());
  }
  return Ok();
}

Status ReadIds(const File& file, TokenizerSource* t) {
  const size_t n = t->tokens.size();
  const struct {
    const char* name;
    int* out;
  } ids[] = {{"bos_token_id", &t->bos},     {"eos_token_id", &t->eos}, {"unknown_token_id", &t->unk},
             {"padding_token_id", &t->pad}, {"eot_token_id", &t->eot}, {"eom_token_id", &t->eom}};
  for (const auto& id : ids) SLM_RETURN_IF_ERROR(ReadId(file, id.name, n, id.out));
  SLM_RETURN_IF_ERROR(ReadFlag(file, "add_bos_token", &t->add_bos));
  SLM_RETURN_IF_ERROR(ReadFlag(file, "add_eos_token", &t->add_eos));
  SLM_RETURN_IF_ERROR(ReadFlag(file, "add_space_prefix", &t->add_space_prefix));
  return ReadFlag(file, "remove_extra_whitespaces", &t->remove_extra_whitespaces);
}

Status ReadTemplates(const File& file, TokenizerSource* t) {
  constexpr std::string_view kMain = "tokenizer.chat_template", kNamed = "tokenizer.chat_template.";
  for (const Key& k : file.keys) {
    if (k.name.substr(0, kMain.size()) != kMain || k.value.type != ValueType::kString) continue;
    const std::string text(reinterpret_cast<const char*>(k.value.bytes.data()), k.value.bytes.size());
    if (k.name == kMain) t->chat_template = text;
    else if (k.name.substr(0, kNamed.size()) == kNamed) t->named_templates.emplace_back(k.name.substr(kNamed.size()), text);
  }
  return Ok();
}

}  // namespace

Result<TokenizerSource> ReadTokenizer(const File& file) {
  TokenizerSource t;
  SLM_ASSIGN_OR_RETURN(const auto model, GetText(file, "tokenizer.ggml.model"));
  if (!model || *model == "no_vocab" || *model == "none") return t;
  t.kind = "gguf";
  t.ggml_model = *model;
  SLM_ASSIGN_OR_RETURN(const auto pre, GetText(file, "tokenizer.ggml.pre"));
  t.ggml_pre = pre.value_or("");
  SLM_RETURN_IF_ERROR(ReadLists(file, &t));
  SLM_RETURN_IF_ERROR(ReadIds(file, &t));
  SLM_RETURN_IF_ERROR(ReadTemplates(file, &t));
  return t;
}

void FindStopTokens(const TokenizerSource& t, ModelConfig* c) {
  if (t.bos >= 0) c->bos_ids = {t.bos};
  const auto add = [&](int id) {
    if (id >= 0 && std::find(c->eos_ids.begin(), c->eos_ids.end(), id) == c->eos_ids.end()) c->eos_ids.push_back(id);
  };
  add(t.eos);
  add(t.eot);
  add(t.eom);
  for (size_t i = 0; i < t.tokens.size() && !t.token_types.empty(); ++i)
    if (t.token_types[i] == kControlToken && std::find(std::begin(kEndOfTurn), std::end(kEndOfTurn), t.tokens[i]) != std::end(kEndOfTurn))
      add(static_cast<int>(i));
}

}  // namespace slm::model::gguf
