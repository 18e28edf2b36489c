// The C++ face of the Rust template engine: the clock, the hash, the two ways to render.
#include "text/chat_template.h"

#include <openssl/evp.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "slm_text.h"
#include "text/rust_error.h"

namespace slm::text {
namespace {

std::string Sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  SLM_ASSERT(EVP_Digest(bytes.data(), bytes.size(), digest, &n, EVP_sha256(), nullptr) == 1);
  std::string hex;
  for (unsigned int i = 0; i < n; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

std::string LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

// `vars` with a clock in it.
Result<std::string> WithClock(std::string_view vars) {
  if (vars.empty()) vars = "{}";
  const auto json = nlohmann::ordered_json::parse(vars, nullptr, false);
  if (!json.is_object())
    return Error(Code::kInvalidArgument, "vars: not a JSON object", "pass an object such as {\"add_generation_prompt\": true}");
  if (json.contains("now")) return std::string(vars);
  auto with_clock = json;
  with_clock["now"] = LocalTime();
  return with_clock.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void AppendText(void* context, const void* data, size_t n) {
  static_cast<ChatPrompt*>(context)->text.append(static_cast<const char*>(data), n);
}

void AppendRanges(void* context, const void* data, size_t n) {
  const auto* offsets = static_cast<const size_t*>(data);
  for (size_t i = 0; i + 1 < n; i += 2) static_cast<ChatPrompt*>(context)->plain.push_back({offsets[i], offsets[i + 1]});
}

}  // namespace

void ChatTemplate::Free::operator()(slm_chat* chat) const { slm_chat_free(chat); }

Result<ChatTemplate> ChatTemplate::FromSource(std::string_view source) {
  ChatTemplate result;
  result.chat_.reset(slm_chat_new(source.data(), source.size()));
  if (result.chat_ == nullptr) return LastRustError(Code::kCorrupt, "correct the template or pass another one");
  result.sha256_ = Sha256(source);
  return result;
}

Result<ChatPrompt> ChatTemplate::Run(const ChatInput& input, const slm_tok* tok) const {
  SLM_ASSIGN_OR_RETURN(const std::string vars, WithClock(input.vars));
  const slm_chat_inputs inputs = {.messages = {input.messages.data(), input.messages.size()},
                                  .tools = {input.tools.data(), input.tools.size()},
                                  .vars = {vars.data(), vars.size()}};
  ChatPrompt prompt;
  if (slm_chat_render(chat_.get(), tok, &inputs, AppendText, AppendRanges, &prompt)) return prompt;
  Error error = LastRustError(Code::kInvalidArgument,
                              "change the messages to what this model's template accepts, or use a template that accepts them");
  const bool limit = error.message().find("ran out of fuel") != std::string::npos || error.message().find("exceeds") != std::string::npos;
  return limit ? Error(Code::kLimit, error.message(), "the template works without end on these messages") : error;
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  SLM_ASSIGN_OR_RETURN(ChatPrompt prompt, Run(input, nullptr));
  return std::move(prompt.text);
}

Result<ChatPrompt> ChatTemplate::RenderPrompt(const ChatInput& input, const Tokenizer& tokenizer) const {
  return Run(input, tokenizer.handle());
}

}  // namespace slm::text
