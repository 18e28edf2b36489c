// posix_spawn with its file actions; see process.h.
#include "fetch/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

extern char** environ;

namespace slm::cli {
namespace {

enum class Stdout : unsigned char { kNull, kWithErrors };
enum class Group : unsigned char { kOurs, kItsOwn };

struct Start {
  std::string folder;
  int err_fd = -1;
  Stdout out = Stdout::kNull;
  Group group = Group::kOurs;
};

// Starts argv with stdin on /dev/null. Returns an errno value.
int Spawn(const std::vector<std::string>& argv, const Start& start, pid_t& pid) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (start.out == Stdout::kNull) posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  else posix_spawn_file_actions_adddup2(&files, start.err_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, start.err_fd, STDERR_FILENO);
  if (!start.folder.empty()) posix_spawn_file_actions_addchdir_np(&files, start.folder.c_str());
  // Ignored signals stay ignored across exec: the program gets its defaults back.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(POSIX_SPAWN_SETSIGDEF | (start.group == Group::kItsOwn ? POSIX_SPAWN_SETPGROUP : 0)));
  const int error = posix_spawnp(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// Reads `fd` to its end, keeping the last part; on Ctrl-C asks `pid` to end once.
void Drain(int fd, pid_t pid, const CancelFlag* cancel, std::string& tail) {
  constexpr size_t kTail = 16 * 1024;
  constexpr int kPollMs = 100;
  bool asked = false;
  char buffer[4096];
  for (;;) {
    if (!asked && cancel->load(std::memory_order_relaxed)) {
      kill(pid, SIGTERM);
      asked = true;
    }
    pollfd wait{fd, POLLIN, 0};
    if (poll(&wait, 1, kPollMs) <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    tail.append(buffer, static_cast<size_t>(n));
    if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
  }
}

int ExitCodeOfStatus(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

Result<ProcessResult> RunProgram(const std::vector<std::string>& argv, const std::string& folder, const CancelFlag* cancel) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Error(Code::kIo, std::string("pipe: ") + strerror(errno), "close some programs");
  pid_t pid = 0;
  const int error = Spawn(argv, {.folder = folder, .err_fd = ends[1]}, pid);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return Error(error == ENOENT ? Code::kNotFound : Code::kIo, argv[0] + ": cannot be started: " + strerror(error));
  }
  ProcessResult result;
  Drain(ends[0], pid, cancel, result.err_tail);
  close(ends[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (cancel->load(std::memory_order_relaxed))
    return Error(Code::kCancelled, "interrupted", "run the same command again to go on where it stopped");
  result.exit_code = ExitCodeOfStatus(status);
  return result;
}

Result<int> RunLogged(const std::vector<std::string>& argv, const std::string& log, int limit_s, const CancelFlag* cancel) {
  using Clock = std::chrono::steady_clock;
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Error(Code::kIo, log + ": " + strerror(errno), "check the folder and its permissions");
  pid_t pid = 0;
  const int error = Spawn(argv, {.folder = {}, .err_fd = fd, .out = Stdout::kWithErrors, .group = Group::kItsOwn}, pid);
  close(fd);
  if (error != 0) return Error(error == ENOENT ? Code::kNotFound : Code::kIo, argv[0] + ": cannot be started: " + strerror(error));
  const auto end = Clock::now() + std::chrono::seconds(limit_s);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    const bool cancelled = cancel->load(std::memory_order_relaxed);
    if (!cancelled && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    kill(-pid, SIGKILL);  // it has nothing of ours to tidy up
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (cancelled) return Error(Code::kCancelled, "interrupted");
    return Error(Code::kLimit, argv[0] + " ran for more than " + std::to_string(limit_s) + " s and was ended", "give it more time");
  }
  return ExitCodeOfStatus(status);
}

}  // namespace slm::cli
