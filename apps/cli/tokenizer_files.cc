#include "tokenizer_files.h"

#include <nlohmann/json.hpp>
#include <set>

#include "model/hf/packed/writing.h"
#include "open_model.h"
#include "text/tokenizer_json.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;
using Files = std::vector<std::pair<std::string, std::string>>;

// tokenizer_config.json of a GGUF file's vocabulary.
ordered_json TokenizerConfig(const model::Model& m) {
  const model::TokenizerSource& t = m.tokenizer;
  ordered_json j = {{"tokenizer_class", t.ggml_model == "llama" ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                    {"clean_up_tokenization_spaces", false},
                    {"model_max_length", m.config.max_context}};
  const std::pair<const char*, int> tokens[] = {{"bos_token", t.bos}, {"eos_token", t.eos}, {"unk_token", t.unk}, {"pad_token", t.pad}};
  for (const auto& [key, id] : tokens)
    if (id >= 0 && static_cast<size_t>(id) < t.tokens.size()) j[key] = t.tokens[static_cast<size_t>(id)];
  if (t.add_bos >= 0) j["add_bos_token"] = t.add_bos != 0;
  if (!t.chat_template.empty()) j["chat_template"] = t.chat_template;
  return j;
}

Result<Files> FilesOf(const model::Model& m) {
  Files out;
  if (m.tokenizer.kind == "gguf") {
    SLM_ASSIGN_OR_RETURN(std::string json, text::TokenizerJson(PartsOf(m.tokenizer)));
    out.emplace_back("tokenizer.json", std::move(json));
    out.emplace_back("tokenizer_config.json", TokenizerConfig(m).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    return out;
  }
  if (m.format != "hf") return out;  // without a vocabulary
  static const std::set<std::string> kOfTheModel = {"config.json", "generation_config.json", "genai_config.json"};
  SLM_ASSIGN_OR_RETURN(auto files, model::hf::SmallFiles(m.path));
  for (auto& file : files)
    if (!kOfTheModel.contains(file.first)) out.push_back(std::move(file));
  return out;
}

}  // namespace

Result<TokenizerFiles> TokenizerFilesOf(const model::Model& m) {
  const auto tokenizer = BuildTokenizer(m.tokenizer);
  const bool none = !tokenizer.ok() && tokenizer.error().code() == Code::kNotFound;
  if (!tokenizer.ok() && !none) return tokenizer.error().At(m.path);
  TokenizerFiles out;
  SLM_ASSIGN_OR_RETURN(out.files, FilesOf(m));
  if (none) out.note = "the model has no tokenizer: neither has the folder";
  return out;
}

}  // namespace slm::cli
