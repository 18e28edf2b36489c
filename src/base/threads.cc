#include "base/threads.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/cpu_limits.h"

namespace slm {
namespace {
// Rounds of spinning (a pause is 10-20 ns). A barrier is due within microseconds, so spin for ~20 us; the next job is often
// due within a token's sampling, so spin for ~100 us. A team larger than the machine must not spin: the thread that is
// waited for needs this very core. The same holds for two threads of the team on one CPU, where a busy system leaves them for
// seconds once wake-ups have drawn them together; so each flag says where its thread was. (Decode beside 2 busy threads on 2 cores,
// 390 tok/s alone: together on one CPU 46 to 100 with spinning, 220 without; on two CPUs 195.)
// Lost: shorter spins on any busy machine (130: each sleep gives a whole time slice to the neighbour), sched_yield before the sleep
// (the same), shorter time slices asked of the system (no effect), pinning (1 tok/s beside a real-time process), moving apart (the
// same danger, and no faster).
constexpr int kBarrierSpin = 1500;
constexpr int kJobSpin = 6000;
constexpr int kLook = 32;  // rounds after which a waiter asks where the other is; most waits are over by then

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void FutexWait(std::atomic<uint32_t>& a, uint32_t old) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&a), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}
void FutexWakeAll(std::atomic<uint32_t>& a) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&a), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
}  // namespace

// The exchange is a full fence: the new value is visible before the sleepers are counted. A waiter counts itself before the
// kernel compares the value. So either the waiter sees the value or it is counted here; no wake-up is lost.
void ThreadTeam::Set(Flag& flag, uint32_t value) {
  // Written only when it changes: a waiter polls this cache line and would take it away between two stores.
  if (const int cpu = sched_getcpu(); flag.cpu.load(std::memory_order_relaxed) != cpu) flag.cpu.store(cpu, std::memory_order_relaxed);
  flag.value.exchange(value, std::memory_order_seq_cst);
  if (flag.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(flag.value);
}

uint32_t ThreadTeam::WaitWhile(Flag& flag, uint32_t old, Wait kind) {
  const int spin = kind == Wait::kJob ? job_spin_ : barrier_spin_;
  uint32_t now;
  for (int i = 0; i < spin; ++i) {
    if ((now = flag.value.load(std::memory_order_acquire)) != old) return now;
    if (i == kLook) {
      const int cpu = sched_getcpu();
      if (cpu >= 0 && flag.cpu.load(std::memory_order_relaxed) == cpu) break;
    }
    Pause();
  }
  flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
  while ((now = flag.value.load(std::memory_order_seq_cst)) == old) FutexWait(flag.value, old);
  flag.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return now;
}

ThreadTeam::ThreadTeam(int n)
    : n_(n),
      barrier_spin_(kBarrierSpin),
      job_spin_(kJobSpin),
      arrived_(new Flag[static_cast<size_t>(std::max(n, 1))]),
      done_(new Flag[static_cast<size_t>(std::max(n, 1))]) {
  if (n > static_cast<int>(AllowedCpus().size())) barrier_spin_ = job_spin_ = 1;
}

Result<std::unique_ptr<ThreadTeam>> ThreadTeam::Create(int n) {
  SLM_ASSERT(n >= 1);
  std::unique_ptr<ThreadTeam> team(new ThreadTeam(n));
  team->threads_.reserve(static_cast<size_t>(n - 1));
  for (int t = 1; t < n; ++t) {
    try {
      team->threads_.emplace_back(&ThreadTeam::Loop, team.get(), t);
    } catch (const std::system_error& e) {  // the team's end stops the threads that run
      return Error(Code::kLimit, "the system gave " + std::to_string(t) + " of " + std::to_string(n) + " threads: " + e.code().message(),
                   "use fewer threads, or raise the limit of processes (ulimit -u, the container's pids limit) or of memory (ulimit -v)");
    }
  }
  return team;
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true);
  Set(go_, go_.value.load(std::memory_order_relaxed) + 1);
  for (auto& t : threads_) t.join();
}

void ThreadTeam::Loop(int thread) {
  for (uint32_t seen = 0;;) {
    seen = WaitWhile(go_, seen, Wait::kJob);
    if (stop_.load()) return;
    job_(context_, thread, n_);
    Set(done_[thread], seen);
  }
}

void ThreadTeam::Run(Job job, void* context) {
  if (n_ == 1) {
    job(context, 0, 1);
    return;
  }
  job_ = job;
  context_ = context;
  const uint32_t number = go_.value.load(std::memory_order_relaxed) + 1;
  Set(go_, number);
  job(context, 0, n_);
  for (int t = 1; t < n_; ++t)
    while (done_[t].value.load(std::memory_order_acquire) != number) WaitWhile(done_[t], number - 1, Wait::kBarrier);
}

void ThreadTeam::Barrier(int thread) {
  if (n_ == 1) return;
  const uint32_t mine = arrived_[thread].value.load(std::memory_order_relaxed) + 1;
  Set(arrived_[thread], mine);
  for (int t = 0; t < n_; ++t) {
    // A neighbour may already be one barrier ahead, never more; so "behind" is exactly mine - 1.
    if (arrived_[t].value.load(std::memory_order_acquire) == mine - 1) WaitWhile(arrived_[t], mine - 1, Wait::kBarrier);
  }
}

int DefaultThreadCount() { return UsableCores(AllowedCpus(), ""); }

}  // namespace slm
