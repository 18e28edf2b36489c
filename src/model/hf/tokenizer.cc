// See tokenizer.h. Where transformers looks for templates: chat_template.jinja first, then chat_template.json, then the field
// of tokenizer_config.json, which is a text or a list of {name, template}.
#include "model/hf/tokenizer.h"

#include "model/hf/keys.h"
#include "model/json.h"

namespace slm::model::hf {
namespace {

using Json = nlohmann::json;
constexpr size_t kVocabularyLimit = size_t{256} << 20, kTextLimit = size_t{32} << 20;

Status ReadFiles(const Folder& folder, TokenizerSource* t) {
  const struct {
    const char* name;
    std::string* out;
    size_t limit;
  } files[] = {
      {"tokenizer.json", &t->tokenizer_json, kVocabularyLimit},
      {"tokenizer_config.json", &t->tokenizer_config_json, kTextLimit},
      {"special_tokens_map.json", &t->special_tokens_map_json, kTextLimit},
      {"vocab.json", &t->vocab_json, kVocabularyLimit},
      {"merges.txt", &t->merges_txt, kVocabularyLimit},
      {"tokenizer.model", &t->spm_model, kVocabularyLimit},
      {"added_tokens.json", &t->added_tokens_json, kTextLimit},
      {"chat_template.jinja", &t->chat_template, kTextLimit},
  };
  for (const auto& f : files) {
    SLM_ASSIGN_OR_RETURN(*f.out, folder.Text(f.name, f.limit));
  }
  return Ok();
}

// The template field of a JSON file: a text, or a list of named texts of which "default" is the main one.
Status ReadTemplateField(const std::string& text, TokenizerSource* t) {
  if (text.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.bytes = kTextLimit, .depth = 64}));
  const Json* field = Keys(json).Find("chat_template");
  if (!field) return Ok();
  if (field->is_string()) {
    if (t->chat_template.empty()) t->chat_template = field->get<std::string>();
    return Ok();
  }
  if (!field->is_array()) return Keys::Wrong("chat_template", "a text or a list");
  for (const Json& entry : *field) {
    std::string name, body;
    SLM_RETURN_IF_ERROR(Keys(entry).Text("name", &name));
    SLM_RETURN_IF_ERROR(Keys(entry).Text("template", &body));
    if (name == "default" && t->chat_template.empty()) t->chat_template = body;
    else t->named_templates.emplace_back(name, body);
  }
  return Ok();
}

}  // namespace

Result<TokenizerSource> ReadTokenizer(const Folder& folder) {
  TokenizerSource t;
  SLM_RETURN_IF_ERROR(ReadFiles(folder, &t));
  SLM_ASSIGN_OR_RETURN(const std::string template_json, folder.Text("chat_template.json", kTextLimit));
  if (Status s = ReadTemplateField(template_json, &t); !s.ok()) return s.error().At("chat_template.json");
  if (Status s = ReadTemplateField(t.tokenizer_config_json, &t); !s.ok()) return s.error().At("tokenizer_config.json");
  if (!t.tokenizer_json.empty() || !t.spm_model.empty() || !t.vocab_json.empty()) t.kind = "hf";
  return t;
}

}  // namespace slm::model::hf
