// From messages or plain text to the prompt's tokens: shared by run and chat.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "open_model.h"

namespace slm::cli {

struct Message {
  std::string role, content;  // role: "system", "user", "assistant"
};

// Has the model a chat template?
bool HasTemplate(const OpenedModel& opened);

// Messages through the model's template, ready for the assistant's turn. What users write never becomes a special token; BOS is
// there exactly once if the model wants it. Errors: kUnsupported without a template, or what the template raises.
Result<std::vector<int32_t>> EncodeChat(const OpenedModel& opened, const std::vector<Message>& messages);

enum class Special : unsigned char { kPlain, kParsed };
// Plain text, with BOS if the model wants it.
Result<std::vector<int32_t>> EncodeRaw(const OpenedModel& opened, const std::string& text, Special special);

}  // namespace slm::cli
