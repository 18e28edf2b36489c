// poll and read; see read_input.h. Streams of the standard library cannot tell an interrupt from the end of input.
#include "read_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

namespace slm::cli {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd > STDIN_FILENO) close(fd);
  }
};

Error Failed(const std::string& name, int why) {
  const bool absent = why == ENOENT || why == ENOTDIR;
  return Error(absent ? Code::kNotFound : Code::kIo, name + ": cannot be read: " + strerror(why),
               why == EISDIR ? "give a file, not a folder" : "check the path and its permissions");
}

Result<std::string> ReadAll(const Io& io, int fd, const std::string& name) {
  std::string text;
  char block[1 << 16];
  for (;;) {
    // A signal that comes just before poll would go unseen until the next byte: the short wait bounds that.
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, 100);
    if (io.cancelled()) return Error(Code::kCancelled, name + ": interrupted while reading");
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t n = read(fd, block, sizeof block);
    if (n == 0) return text;
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return Failed(name, errno);
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kInputLimit) return Error(Code::kLimit, name + ": more than 64 MiB of text", "give a smaller text, or a part of it");
  }
}

}  // namespace

Result<std::string> ReadInput(const Io& io, const std::string& path) {
  return path == "-" ? ReadAll(io, STDIN_FILENO, "standard input") : ReadInputFile(io, path);
}

Result<std::string> ReadInputFile(const Io& io, const std::string& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0 && errno == EINTR && io.cancelled()) return Error(Code::kCancelled, path + ": interrupted while opening");
  if (file.fd < 0) return Failed(path, errno);
  return ReadAll(io, file.fd, path);
}

}  // namespace slm::cli
