// Messages → template → tokens, with the marks of which bytes are users' words carried all the way to the tokenizer.
#include "prompt.h"

#include <nlohmann/json.hpp>

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

// BOS exactly once: templates of some models write it, files of others ask the tokenizer for it, some do both. The tokenizer's
// end token (add_eos) has no place before an answer.
std::vector<int32_t> WithPrefix(const OpenedModel& opened, std::vector<int32_t> ids) {
  std::vector<int32_t> prefix = opened.begin;
  if (const auto own = opened.tokenizer->prefix(); prefix.empty()) prefix.assign(own.begin(), own.end());
  if (!prefix.empty() && (ids.empty() || ids.front() != prefix.front())) ids.insert(ids.begin(), prefix.begin(), prefix.end());
  return ids;
}

std::string Dump(const ordered_json& j) { return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

// What templates read: the spelling of the model's own tokens, and that the assistant speaks next.
std::string Variables(const text::Tokenizer& tokenizer) {
  ordered_json vars = {{"add_generation_prompt", true}};
  const auto put = [&](const char* name, text::TokenId id) {
    if (id != text::kNoToken) vars[name] = std::string(tokenizer.TokenBytes(id));
  };
  put("bos_token", tokenizer.bos());
  put("eos_token", tokenizer.eos());
  put("unk_token", tokenizer.unk());
  put("pad_token", tokenizer.pad());
  return Dump(vars);
}

}  // namespace

bool HasTemplate(const OpenedModel& opened) { return !opened.model->tokenizer.chat_template.empty(); }

Result<std::vector<int32_t>> EncodeChat(const OpenedModel& opened, const std::vector<Message>& messages) {
  if (!HasTemplate(opened)) return Error(Code::kUnsupported, "this model has no chat template", "use --raw, or an instruct model");
  SLM_ASSIGN_OR_RETURN(const auto chat, text::ChatTemplate::FromSource(opened.model->tokenizer.chat_template));
  ordered_json list = ordered_json::array();
  for (const Message& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  const std::string json = Dump(list), vars = Variables(*opened.tokenizer);
  SLM_ASSIGN_OR_RETURN(const text::ChatPrompt prompt, chat.RenderPrompt({json, {}, vars}, *opened.tokenizer));
  SLM_ASSIGN_OR_RETURN(auto ids, opened.tokenizer->EncodePrompt(prompt.text, prompt.plain, text::AddBosEos::kNo));
  return WithPrefix(opened, std::move(ids));
}

Result<std::vector<int32_t>> EncodeRaw(const OpenedModel& opened, const std::string& text, Special special) {
  const auto mode = special == Special::kParsed ? text::SpecialTokens::kParse : text::SpecialTokens::kPlain;
  SLM_ASSIGN_OR_RETURN(auto ids, opened.tokenizer->Encode(text, mode, text::AddBosEos::kNo));
  return WithPrefix(opened, std::move(ids));
}

}  // namespace slm::cli
