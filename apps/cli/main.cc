// Process set-up of `slm`: descriptors, signals, environment. Everything else is in frame.cc, so that tests can call it.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdlib>

#include "store.h"
#include "verb.h"

namespace {

using slm::cli::CancelFlag;

// A signal handler can reach nothing but static storage; this flag is the program's only one.
CancelFlag interrupted{false};
static_assert(CancelFlag::is_always_lock_free);

// The first Ctrl-C asks the verb to stop; a second one, while the first is still unanswered, stops the process.
extern "C" void OnInterrupt(int) {
  if (interrupted.exchange(true)) _exit(slm::cli::kExitInterrupted);
}

// A file opened later must not become stdout and be written into: the numbers of closed streams are taken by one that fails in the
// same way (EBADF).
void FillClosedStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(slm::cli::kExitFailed);
}

void InstallSignals() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a blocked read returns, so that the verb sees the flag
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited = {};
    sigaction(signal, nullptr, &inherited);
    // Who started us with it ignored (nohup, a background job of a script) wants it ignored.
    if (inherited.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  action.sa_handler = SIG_IGN;  // a closed pipe is seen as a failed write
  sigaction(SIGPIPE, &action, nullptr);
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // whoever shares the descriptor made it non-blocking
      pollfd wait{fd, POLLOUT, 0};
      poll(&wait, 1, -1);
      continue;
    }
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  FillClosedStreams();
  InstallSignals();
#ifdef __GLIBC__
  // Our results are written to the descriptor. What a vendor's library prints would spoil them, so it goes to stderr.
  stdout = stderr;
#endif
  slm::cli::Io io;
  io.out = [](std::string_view text) { return WriteAll(STDOUT_FILENO, text); };
  io.err = [](std::string_view text) { return WriteAll(STDERR_FILENO, text); };
  io.out_terminal = isatty(STDOUT_FILENO) ? slm::cli::Terminal::kYes : slm::cli::Terminal::kNo;
  io.err_terminal = isatty(STDERR_FILENO) ? slm::cli::Terminal::kYes : slm::cli::Terminal::kNo;
  io.cancel = &interrupted;
  io.store = slm::cli::StoreRoot([](const char* name) { return std::getenv(name); });
  return slm::cli::RunCommandLine({argv + 1, argv + argc}, io);
}
