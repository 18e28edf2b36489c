// One team of threads for everything: each job runs on all of them, with a spin barrier inside the job.
//
// Why own: a sleep between tokens costs 40 us (futex round trip) and libgomp's barrier 250 ns; a flag barrier with one cache
// line per thread costs 50-100 ns. Spinning is bounded, so that a busy machine does not collapse: a waiter soon sleeps on
// the flag it waits for, and at once when the thread that it waits for was last seen on its own CPU. The sleep is a plain futex
// with its own count of sleepers: std::atomic::notify after a release store may be reordered before that store is visible, and
// then the wake-up is lost.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"

namespace slm {

class ThreadTeam {
 public:
  // Starts n - 1 threads (n >= 1); the caller of Run is thread 0. Error: kLimit when the system refuses one (a limit of
  // processes or memory), with both numbers named; those that had started are stopped.
  static Result<std::unique_ptr<ThreadTeam>> Create(int n);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  int size() const { return n_; }

  using Job = void (*)(void* context, int thread, int n_threads);
  // Runs job(context, t, n) on every thread t in [0, n) and returns when all are done. Not reentrant, no allocation.
  void Run(Job job, void* context);
  template <class F>
  void Run(F& f) {  // f(thread, n_threads)
    Run([](void* c, int t, int n) { (*static_cast<F*>(c))(t, n); }, &f);
  }
  // Inside a job: waits until every thread of the team has arrived. Thread t passes its own index.
  void Barrier(int thread);

 private:
  // A number that one thread advances and others wait for.
  struct alignas(64) Flag {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> sleepers{0};
    std::atomic<int> cpu{-1};  // where the thread that advances it was then
  };
  static void Set(Flag& flag, uint32_t value);
  enum class Wait : uint8_t { kBarrier, kJob };
  uint32_t WaitWhile(Flag& flag, uint32_t old, Wait kind);  // returns the new value
  explicit ThreadTeam(int n);
  void Loop(int thread);
  int n_;
  int barrier_spin_, job_spin_;      // rounds before a waiter sleeps
  std::unique_ptr<Flag[]> arrived_;  // [n]: barrier rounds this thread has entered
  std::unique_ptr<Flag[]> done_;     // [n]: jobs this thread has finished
  Flag go_;                          // job number
  std::atomic<bool> stop_{false};
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> threads_;
};

// The team's size unless the user says another: the cores that cpu_limits.h counts on this machine; at least 1.
int DefaultThreadCount();

// [begin, end) of `n` items for thread t of n_threads, in multiples of `grain`.
struct Range {
  int64_t begin, end;
};
constexpr Range SplitRange(int64_t n, int64_t grain, int t, int n_threads) {
  const int64_t groups = (n + grain - 1) / grain;
  const int64_t b = groups * t / n_threads * grain, e = groups * (t + 1) / n_threads * grain;
  return {b < n ? b : n, e < n ? e : n};
}

}  // namespace slm
