// ChatTemplate: a conversation to the prompt its model was trained on.
//
// Semantics are those of transformers' apply_chat_template (sandboxed Jinja2, trim_blocks, lstrip_blocks, loop controls,
// json.dumps spelling), over minijinja, with limits: 1 MiB of source, 2000 operators in a tag, 4 million steps, depth 200 of
// calls and of printed data, 64 MiB of output, 256 MiB of memory, 20 seconds. Templates and messages of strangers are safe to
// run: the engine works on a thread of its own. A thread that overdraws memory or time is left behind with what it holds
// (nothing can unwind it); after four of them the template is refused.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/token.h"
#include "text/tokenizer.h"

struct slm_chat;  // rust/slm_text

namespace slm::text {

// JSON documents. `tools` and `vars` may be empty. `vars` is an object: bos_token, eos_token, add_generation_prompt and what
// else the template reads; its "now" ("YYYY-MM-DD HH:MM:SS") is the clock of strftime_now, else the local time is.
struct ChatInput {
  std::string_view messages;
  std::string_view tools;
  std::string_view vars;
};

// A rendered conversation. `plain` marks control spellings that came from messages or tools, sorted.
struct ChatPrompt {
  std::string text;
  std::vector<PlainRange> plain;
};

class ChatTemplate {
 public:
  // Compiles a Jinja source. Errors: kCorrupt with the line.
  static Result<ChatTemplate> FromSource(std::string_view source);

  // The text transformers gives. Errors: kInvalidArgument (bad JSON, raise_exception, a failing expression: line and reason),
  // kLimit (work, depth, memory or size).
  Result<std::string> Render(const ChatInput& input) const;

  // The same for a model's input: no string of messages or tools can form a control token of `tokenizer`. While the template
  // runs, control spellings inside them (and parts of one at a string's ends) are private characters; afterwards they are put
  // back and marked plain. Without such spellings the text equals Render's. Feed both members to Tokenizer::EncodePrompt.
  Result<ChatPrompt> RenderPrompt(const ChatInput& input, const Tokenizer& tokenizer) const;

  // SHA-256 of the source, lower-case hex: which template a model was served with.
  const std::string& sha256() const { return sha256_; }

 private:
  struct Free {
    void operator()(slm_chat* chat) const;
  };
  ChatTemplate() = default;
  Result<ChatPrompt> Run(const ChatInput& input, const slm_tok* tok) const;

  std::unique_ptr<slm_chat, Free> chat_;
  std::string sha256_;
};

}  // namespace slm::text
