// A child in namespaces of its own; see sandbox.h. Sources: namespaces(7), user_namespaces(7), mount_setattr(2), capabilities(7).
//
// Everything that the child needs is prepared before the fork: this process has threads, and between fork and exec only system calls are
// safe.
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "sandbox/seccomp.h"

namespace slm::cli {
namespace {

// How far the child came when it could not go on; its exit code is kStep + this.
enum Step : int { kNamespaces, kIds, kMounts, kFolder, kReadOnly, kProcesses, kLimits, kPrivileges, kCalls, kExec, kSteps };
constexpr int kStep = 100;
constexpr const char* kStepNames[kSteps] = {"namespaces of users, files, processes and networks (unshare)",
                                            "a mapping of user ids",
                                            "private mounts",
                                            "a folder in memory",
                                            "a read-only view of the files (mount_setattr)",
                                            "a process namespace",
                                            "resource limits",
                                            "giving up privileges",
                                            "a filter of system calls (seccomp)",
                                            "python3"};

// All that the child uses.
struct Prepared {
  std::string python, uid_map, gid_map, mount_options, folder;
  std::vector<std::string> words;
  std::vector<char*> argv;
  const char* envp[4] = {"PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "HOME=/", nullptr};
  SandboxLimits limits;
  uid_t uid = 0;  // whom the program runs as
  gid_t gid = 0;
  int token_fd = -1, program_fd = -1, null_fd = -1;
};

std::string FindPython() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string file = std::string(rest.substr(0, end)) + "/python3";
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::error_code failed;
    if (file[0] == '/' && access(file.c_str(), X_OK) == 0) {
      const std::string real = std::filesystem::canonical(file, failed).string();
      // A shim is a script that looks for the interpreter by files that may be out of its reach here.
      char head[2] = {};
      const int fd = failed ? -1 : open(real.c_str(), O_RDONLY | O_CLOEXEC);
      const bool script = fd < 0 || read(fd, head, 2) != 2 || (head[0] == '#' && head[1] == '!');
      if (fd >= 0) close(fd);
      if (!script) return real;
    }
  }
  return {};
}

bool WriteText(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool all = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return all;
}

[[noreturn]] void Stop(Step step) { _exit(kStep + step); }

bool ReadOnlyEverywhere() {
  mount_attr attr = {};
  attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  return syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof attr) == 0;
}

bool Limit(int what, uint64_t most) {
  const rlimit limit{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  return setrlimit(static_cast<__rlimit_resource>(what), &limit) == 0;
}

bool GiveUpPrivileges() {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  for (int cap = 0; cap < 64; ++cap)
    if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno != EINVAL) return false;
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_capset, &head, none) == 0;
}

// The kernel exempts root from the limit of processes, in a namespace of its own as well: root's program runs as nobody.
bool BecomeNobody(const Prepared& p) {
  if (geteuid() != 0) return true;
  if (syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setresgid, p.gid, p.gid, p.gid) != 0 ||
      syscall(SYS_setresuid, p.uid, p.uid, p.uid) != 0)
    return false;
  // Changing users cleared both: without the first the maps of ids cannot be written.
  return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

// The program's own process, the first of its namespace: all others end with it.
[[noreturn]] void BeProgram(const Prepared& p) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const SandboxLimits& l = p.limits;
  if (!Limit(RLIMIT_CPU, static_cast<uint64_t>(l.seconds) + 1) || !Limit(RLIMIT_AS, l.memory_bytes) ||
      !Limit(RLIMIT_FSIZE, l.folder_bytes) || !Limit(RLIMIT_NOFILE, 64) || !Limit(RLIMIT_CORE, 0) ||
      !Limit(RLIMIT_NPROC, static_cast<uint64_t>(l.processes)))
    Stop(kLimits);
  if (chdir(p.folder.c_str()) != 0) Stop(kFolder);
  dup2(p.program_fd, 0);
  dup2(p.null_fd, 1);
  dup2(p.null_fd, 2);
  if (p.token_fd != 3) dup2(p.token_fd, 3);
  else fcntl(3, F_SETFD, 0);
  syscall(SYS_close_range, 4u, ~0u, 0u);
  if (!GiveUpPrivileges()) Stop(kPrivileges);
  if (!RefuseSystemCalls()) Stop(kCalls);
  execve(p.python.c_str(), p.argv.data(), const_cast<char* const*>(p.envp));
  Stop(kExec);
}

// Between this process and the program: makes the namespaces, waits.
[[noreturn]] void BeKeeper(const Prepared& p) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!BecomeNobody(p)) Stop(kIds);
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) != 0) Stop(kNamespaces);
  if (!WriteText("/proc/self/setgroups", "deny") || !WriteText("/proc/self/uid_map", p.uid_map) ||
      !WriteText("/proc/self/gid_map", p.gid_map))
    Stop(kIds);
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Stop(kMounts);
  if (!ReadOnlyEverywhere()) Stop(kReadOnly);
  if (mount("tmpfs", p.folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, p.mount_options.c_str()) != 0) Stop(kFolder);
  const pid_t program = fork();
  if (program < 0) Stop(kProcesses);
  if (program == 0) BeProgram(p);
  int status = 0;
  while (waitpid(program, &status, 0) < 0 && errno == EINTR) {
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

// What came out of `fd` until it was closed or `deadline`; at most `most` bytes.
std::string ReadUntil(int fd, int64_t deadline_ns, size_t most) {
  std::string text;
  char buffer[256];
  for (;;) {
    const int64_t left_ms = (deadline_ns - NowNs()) / 1'000'000;
    pollfd one{fd, POLLIN, 0};
    if (left_ms <= 0 || poll(&one, 1, static_cast<int>(left_ms)) == 0) return text;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0 && !(n < 0 && errno == EINTR)) return text;
    if (n > 0 && text.size() < most) text.append(buffer, static_cast<size_t>(n));
  }
}

// A file without a name that holds `text`, to be read from its beginning.
int FileOf(const std::string& text) {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "program", 1u /* MFD_CLOEXEC */));
  if (fd < 0) return -1;
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n < 0) return close(fd), -1;
    at += static_cast<size_t>(n);
  }
  return lseek(fd, 0, SEEK_SET) == 0 ? fd : (close(fd), -1);
}

// Waits for the keeper; false when it was still there at the deadline.
bool WaitFor(pid_t keeper, int64_t deadline_ns, int* status) {
  while (NowNs() < deadline_ns) {
    const pid_t ended = waitpid(keeper, status, WNOHANG);
    if (ended == keeper || (ended < 0 && errno != EINTR)) return true;
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

Error Missing(const std::string& what) {
  return Error(Code::kUnavailable, "code of a model cannot be run in isolation here: " + what + " is not available",
               "use Linux 5.12 or newer where users may make namespaces, with python3");
}

}  // namespace

std::string PassLine(const std::string& token) { return "import os as _slm_os; _slm_os.write(3, b'" + token + "')"; }

Result<RunVerdict> RunPython(const std::string& program, const std::string& token, const SandboxLimits& limits) {
  Prepared p;
  p.limits = limits;
  p.python = FindPython();
  if (p.python.empty()) return Missing("python3");
  constexpr unsigned kNobody = 65534;  // user_namespaces(7): the id that stands for what is not mapped
  p.uid = geteuid() == 0 ? kNobody : geteuid();
  p.gid = geteuid() == 0 ? kNobody : getegid();
  p.uid_map = fmt::format("{0} {0} 1", p.uid);
  p.gid_map = fmt::format("{0} {0} 1", p.gid);
  p.mount_options = fmt::format("size={},mode=0700", limits.folder_bytes);
  p.folder = "/tmp";
  p.words = {"python3", "-I", "-S", "-"};
  for (std::string& w : p.words) p.argv.push_back(w.data());
  p.argv.push_back(nullptr);
  int ends[2] = {-1, -1};
  p.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  p.program_fd = FileOf(program);
  if (p.null_fd < 0 || p.program_fd < 0 || pipe2(ends, O_CLOEXEC) != 0) return Error(Code::kIo, strerror(errno));
  p.token_fd = ends[1];
  const int64_t deadline = NowNs() + int64_t{limits.seconds} * 1'000'000'000;
  const pid_t keeper = fork();
  if (keeper == 0) BeKeeper(p);
  close(ends[1]);
  close(p.null_fd);
  close(p.program_fd);
  if (keeper < 0) {
    close(ends[0]);
    return Error(Code::kIo, std::string("fork: ") + strerror(errno));
  }
  const std::string said = ReadUntil(ends[0], deadline, token.size() + 1);
  close(ends[0]);
  int status = 0;
  if (!WaitFor(keeper, deadline, &status)) {
    kill(keeper, SIGKILL);  // the program dies with it
    waitpid(keeper, &status, 0);
    return RunVerdict::kTimeout;
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (said != token && code >= kStep && code < kStep + kSteps) return Missing(kStepNames[code - kStep]);
  return said == token && code == 0 ? RunVerdict::kPassed : RunVerdict::kFailed;
}

Status CheckSandbox() {
  const std::string token = "yes";
  const auto run = [&](const std::string& program) { return RunPython(program + "\n" + PassLine(token) + "\n", token, {.seconds = 20}); };
  SLM_ASSIGN_OR_RETURN(const RunVerdict plain, run("open('note', 'w').write('x')"));
  if (plain != RunVerdict::kPassed) return Missing("running a plain program");
  for (const auto& [what, program] : {std::pair("keeping it from sockets", "import _socket; _socket.socket()"),
                                      {"keeping it from files", "open('/var/tmp/slm-sandbox-test', 'w')"},
                                      {"keeping it from devices", "open('/dev/null', 'w')"}}) {
    SLM_ASSIGN_OR_RETURN(const RunVerdict verdict, run(program));
    if (verdict == RunVerdict::kPassed) return Missing(what);
  }
  return Ok();
}

}  // namespace slm::cli
