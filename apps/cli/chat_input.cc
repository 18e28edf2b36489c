// Reads lines from a descriptor without losing an interrupt, and joins them to messages.
#include "chat_input.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

namespace slm::cli {
namespace {

constexpr std::string_view kFence = "\"\"\"";
constexpr size_t kLongestLine = 64u << 20;  // an endless line without a break must not take all memory

}  // namespace

ChatInput::Event ChatInput::Line(std::string& line) {
  for (;;) {
    if (const size_t at = buffer_.find('\n'); at != std::string::npos) {
      line.assign(buffer_, 0, at);
      if (line.ends_with('\r')) line.pop_back();
      buffer_.erase(0, at + 1);
      return Event::kText;
    }
    if (ended_ || buffer_.size() > kLongestLine) {
      line = std::exchange(buffer_, {});
      return line.empty() ? Event::kEnd : Event::kText;
    }
    // A signal that comes just before poll would go unseen until the next key: the short wait bounds that.
    pollfd wait = {fd_, POLLIN, 0};
    const int ready = poll(&wait, 1, 200);
    if (cancel_.exchange(false)) {
      buffer_.clear();
      return Event::kInterrupted;
    }
    if (ready <= 0) continue;
    char block[4096];
    const ssize_t n = read(fd_, block, sizeof block);
    if (n > 0) buffer_.append(block, static_cast<size_t>(n));
    else if (n == 0 || (errno != EINTR && errno != EAGAIN)) ended_ = true;
  }
}

ChatInput::Event ChatInput::Block(std::string first, std::string& message) {
  for (std::string line = std::move(first);;) {
    if (const size_t at = line.find(kFence); at != std::string::npos) {
      message.append(line, 0, at);
      return Event::kText;
    }
    message += line + "\n";
    prompt_(false);
    const Event e = Line(line);
    if (e == Event::kInterrupted) return e;
    if (e == Event::kEnd) return Event::kText;  // an unclosed block ends with the input
  }
}

ChatInput::Event ChatInput::Next(std::string& message) {
  message.clear();
  prompt_(true);
  for (;;) {
    std::string line;
    const Event e = Line(line);
    if (e == Event::kEnd && !message.empty()) return Event::kText;
    if (e != Event::kText) return e;
    if (message.empty() && line.starts_with(kFence)) return Block(line.substr(kFence.size()), message);
    if (!line.ends_with('\\')) {
      message += line;
      return Event::kText;
    }
    line.back() = '\n';
    message += line;
    prompt_(false);
  }
}

}  // namespace slm::cli
