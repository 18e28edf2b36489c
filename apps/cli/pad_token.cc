// See pad_token.h.
#include "pad_token.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "model/json.h"

namespace slm::cli {
namespace {
using nlohmann::json;

bool Ends(const model::Model& m, int id) {
  const model::TokenizerSource& t = m.tokenizer;
  const auto has = [id](const std::vector<int32_t>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  return has(m.config.bos_ids) || has(m.config.eos_ids) || id == t.bos || id == t.eos || id == t.eot || id == t.eom;
}

bool InTemplate(const model::Model& m, const std::string& text) {
  const auto has = [&](const std::string& source) { return source.find(text) != std::string::npos; };
  return has(m.tokenizer.chat_template) || std::any_of(m.tokenizer.named_templates.begin(), m.tokenizer.named_templates.end(),
                                                       [&](const auto& each) { return has(each.second); });
}

// The token of the byte 0xFF, which no UTF-8 text has; -1: the vocabulary is not of bytes.
int ByteOfNoText(const json& tokenizer) {
  const json* vocabulary = &tokenizer;
  for (const char* key : {"model", "vocab"}) {
    if (!vocabulary->is_object() || !vocabulary->contains(key)) return -1;
    vocabulary = &(*vocabulary)[key];
  }
  if (!vocabulary->is_object()) return -1;
  // Byte-level vocabularies write a byte as one character: 0x00 as U+0100, 0xFF as U+00FF.
  const bool byte_level = vocabulary->contains("\u0100");
  const json id = vocabulary->value("<0xFF>", byte_level ? vocabulary->value("\u00ff", json()) : json());
  const int64_t n = id.is_number_integer() ? id.get<int64_t>() : -1;
  return n >= 0 && n <= INT32_MAX ? static_cast<int>(n) : -1;
}

}  // namespace

int PadToken(const model::Model& m, const TokenizerFiles& tokenizer) {
  int best = -1;
  const auto file = std::find_if(tokenizer.files.begin(), tokenizer.files.end(), [](const auto& f) { return f.first == "tokenizer.json"; });
  const auto parsed = file == tokenizer.files.end() ? Result<json>(json()) : model::ParseJson(file->second, {.bytes = size_t{64} << 20});
  if (parsed.ok() && parsed.value().is_object() && parsed.value().value("added_tokens", json()).is_array())
    for (const json& token : parsed.value()["added_tokens"]) {
      if (!token.is_object() || token.value("special", json()) != true || !token.value("id", json()).is_number_integer() ||
          !token.value("content", json()).is_string())
        continue;
      const int64_t given = token["id"].get<int64_t>();
      if (given < 0 || given >= m.config.vocab_size) continue;
      const int id = static_cast<int>(given);
      if (Ends(m, id) || InTemplate(m, token["content"])) continue;
      if (id == m.tokenizer.pad) return id;
      best = std::max(best, id);
    }
  if (best < 0 && parsed.ok()) best = ByteOfNoText(parsed.value());
  if (best >= m.config.vocab_size) best = -1;
  for (int id = m.config.vocab_size - 1; best < 0 && id > 0; --id)
    if (!Ends(m, id)) best = id;
  return std::max(best, 0);
}

}  // namespace slm::cli
