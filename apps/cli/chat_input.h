// What a person types into the chat: lines, joined to messages where they say so.
//
// Why own: std::getline cannot tell an interrupt from the end of input. Line editing is the terminal's own (backspace, Ctrl-U,
// Ctrl-W); `rlwrap slm chat` adds history and arrow keys without a library in the product.
#pragma once
#include <functional>
#include <string>

#include "verb.h"

namespace slm::cli {

class ChatInput {
 public:
  enum class Event : unsigned char { kText, kEnd, kInterrupted };
  // Reads descriptor `fd`. `prompt` is called before each line with true for the first line of a message.
  ChatInput(int fd, CancelFlag& cancel, std::function<void(bool first)> prompt) : fd_(fd), cancel_(cancel), prompt_(std::move(prompt)) {}

  // One message. A line that ends in a backslash goes on; """ opens a block that the next """ closes. kInterrupted: Ctrl-C
  // while waiting (the flag is cleared, what was typed is dropped). kEnd: no more input and nothing typed.
  Event Next(std::string& message);

 private:
  Event Line(std::string& line);
  Event Block(std::string first, std::string& message);

  int fd_;
  CancelFlag& cancel_;
  std::function<void(bool)> prompt_;
  std::string buffer_;  // read, not yet taken
  bool ended_ = false;
};

}  // namespace slm::cli
