// slm render: a conversation through a chat template, as text: what a prompt looks like before it becomes tokens.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/model.h"
#include "open_model.h"
#include "printable.h"
#include "read_input.h"
#include "store.h"
#include "text/text.h"
#include "verb.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

struct RenderOptions {
  std::string source, messages, tools, vars;
};

// A file that is neither a GGUF container nor inside a model: a template on its own.
bool IsTemplateFile(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) != "GGUF";
}

// Adds the model's own token spellings to what the user passed; the user's win.
Result<std::string> CompleteVars(std::string vars, const text::Tokenizer& tokenizer) {
  auto json = ordered_json::parse(vars.empty() ? "{}" : vars, nullptr, false);
  if (!json.is_object()) return Error(Code::kInvalidArgument, "vars: not a JSON object");
  const std::pair<const char*, text::TokenId> own[] = {
      {"bos_token", tokenizer.bos()}, {"eos_token", tokenizer.eos()}, {"unk_token", tokenizer.unk()}, {"pad_token", tokenizer.pad()}};
  for (const auto& [name, id] : own)
    if (id != text::kNoToken && !json.contains(name)) json[name] = std::string(tokenizer.TokenBytes(id));
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The template's source; for a model also completes `vars`.
Result<std::string> FindSource(const RenderOptions& o, const Io& io, std::string& vars) {
  if (IsTemplateFile(o.source)) return ReadInputFile(io, o.source);
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, o.source));
  SLM_ASSIGN_OR_RETURN(const auto model, model::LoadModel(path, model::LoadWhat::kTokenizerOnly));
  if (model->tokenizer.chat_template.empty())
    return Error(Code::kUnsupported, path + ": this model has no chat template", "pass a template file instead of the model");
  auto tokenizer = BuildTokenizer(model->tokenizer);
  if (!tokenizer.ok()) return tokenizer.error().At(path);
  SLM_ASSIGN_OR_RETURN(vars, CompleteVars(vars, tokenizer.value()));
  return model->tokenizer.chat_template;
}

// The text room names what it was given ("messages: …"): here that is the content of a file.
Error NameFile(const Error& error, const RenderOptions& o) {
  const std::pair<const char*, const std::string&> files[] = {{"messages", o.messages}, {"tools", o.tools}, {"vars", o.vars}};
  for (const auto& [what, path] : files) {
    const std::string start = std::string(what) + ": ";
    if (error.message().starts_with(start))
      return Error(Code::kCorrupt, path + ": --" + what + ": " + error.message().substr(start.size()), "correct the file");
  }
  return error;
}

Result<std::string> ReadJson(const Io& io, const std::string& path, const std::string& option) {
  SLM_ASSIGN_OR_RETURN(std::string text, ReadInput(io, path));
  if (!IsUtf8(text)) return Error(Code::kCorrupt, path + ": " + option + ": not UTF-8", "save the file as UTF-8");
  return text;
}

Result<int> Render(const RenderOptions& o, Io& io) {
  std::string tools, vars;
  SLM_ASSIGN_OR_RETURN(const std::string messages, ReadJson(io, o.messages, "--messages"));
  if (!o.tools.empty()) {
    SLM_ASSIGN_OR_RETURN(tools, ReadJson(io, o.tools, "--tools"));
  }
  if (!o.vars.empty()) {
    SLM_ASSIGN_OR_RETURN(vars, ReadJson(io, o.vars, "--vars"));
  }
  const auto found = FindSource(o, io, vars);
  if (!found.ok()) return NameFile(found.error(), o);
  const auto compiled = text::ChatTemplate::FromSource(found.value());
  if (!compiled.ok()) return compiled.error().At(o.source);
  const text::ChatTemplate& chat = compiled.value();
  const auto rendered = chat.Render({.messages = messages, .tools = tools, .vars = vars});
  if (!rendered.ok()) return NameFile(rendered.error(), o);
  const std::string& text = rendered.value();
  if (io.json) io.PrintJson({{"text", text}, {"template_sha256", chat.sha256()}});
  else io.Print(text);
  return int{kExitOk};
}

}  // namespace

Body DeclareRender(CLI::App& app, Io& io) {
  auto o = std::make_shared<RenderOptions>();
  app.add_option("MODEL_OR_TEMPLATE", o->source, "a model with a chat template, or a Jinja file")->required();
  app.add_option("--messages", o->messages, "JSON file: a list of {\"role\", \"content\"}")->required();
  app.add_option("--tools", o->tools, "JSON file: a list of tools, or null");
  app.add_option("--vars", o->vars, "JSON file: add_generation_prompt, bos_token, \"now\" for the clock, and what else the template reads");
  app.footer(
      "Example:\n  echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' > chat.json\n  slm render smollm2-135m-instruct --messages chat.json");
  return [o, &io] { return Render(*o, io); };
}

}  // namespace slm::cli
