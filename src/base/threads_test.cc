// ThreadTeam: barriers order memory, no wake-up is lost, and neither a team larger than the machine nor a busy neighbour
// hangs it. Plain (non-atomic) data crosses the barriers, so the thread sanitizer checks the ordering too.
#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/cpu_limits.h"

namespace slm {
namespace {

// Spins on `n` threads until destroyed.
class BusyNeighbour {
 public:
  explicit BusyNeighbour(int n) {
    for (int i = 0; i < n; ++i)
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~BusyNeighbour() {
    stop_ = true;
    for (auto& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

int64_t ThreadCpuNs() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

// Every thread writes its slot, all meet, every thread reads all slots, all meet.
void Exchange(int n, int rounds) {
  auto owner = ThreadTeam::Create(n).Take();
  ThreadTeam& team = *owner;
  std::vector<int> slot(static_cast<size_t>(n), -1), wrong(static_cast<size_t>(n), 0);
  auto job = [&](int t, int size) {
    for (int r = 0; r < rounds; ++r) {
      slot[t] = r;
      team.Barrier(t);
      for (int i = 0; i < size; ++i) wrong[t] += slot[i] != r;
      team.Barrier(t);
    }
  };
  team.Run(job);
  EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0) << n << " threads";
}

TEST(ThreadTeam, EveryThreadRunsEachJobOnce) {
  for (int n = 1; n <= 8; ++n) {
    auto owner = ThreadTeam::Create(n).Take();
    ThreadTeam& team = *owner;
    EXPECT_EQ(team.size(), n);
    std::vector<int> count(static_cast<size_t>(n), 0);
    for (int job_idx = 0; job_idx < 500; ++job_idx) {
      auto job = [&](int t, int size) { count[t] += size == n; };
      team.Run(job);
    }
    for (const int c : count) EXPECT_EQ(c, 500);
  }
}

TEST(ThreadTeam, BarriersOrderMemoryForOneToEightThreads) {
  for (int n = 1; n <= 8; ++n) Exchange(n, 1000);
}

TEST(ThreadTeam, BarriersAcrossJobs) {
  auto owner = ThreadTeam::Create(3).Take();
  ThreadTeam& team = *owner;
  std::vector<int> slot(3, 0);
  int wrong = 0;
  for (int j = 1; j <= 1000; ++j) {  // one barrier a job: the epochs keep counting from job to job
    auto job = [&](int t, int) {
      slot[t] = j;
      team.Barrier(t);
      if (t == 0) wrong += slot[0] != j || slot[1] != j || slot[2] != j;
    };
    team.Run(job);
  }
  EXPECT_EQ(wrong, 0);
}

// Pauses between jobs and before barriers make the waiters sleep, which is where a wake-up could be lost.
TEST(ThreadTeam, SleepersAreWoken) {
  for (const int n : {2, 5}) {
    auto owner = ThreadTeam::Create(n).Take();
    ThreadTeam& team = *owner;
    std::vector<int> count(static_cast<size_t>(n), 0);
    for (int j = 0; j < 30; ++j) {
      std::this_thread::sleep_for(std::chrono::microseconds(j % 3 * 400));
      auto job = [&](int t, int size) {
        if (t == j % size) std::this_thread::sleep_for(std::chrono::microseconds(600));
        team.Barrier(t);
        ++count[t];
        team.Barrier(t);
      };
      team.Run(job);
    }
    for (const int c : count) EXPECT_EQ(c, 30);
  }
}

TEST(ThreadTeam, BusyNeighbourDoesNotStopIt) {
  BusyNeighbour neighbour(2);
  for (const int n : {2, 8}) Exchange(n, 500);
}

// Both threads on one CPU: whoever waits must let the other run instead of spinning for it. 20000 barriers tell.
TEST(ThreadTeam, ThreadsOnOneCpuDoNotSpinForEachOther) {
  auto owner = ThreadTeam::Create(2).Take();
  ThreadTeam& team = *owner;
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(AllowedCpus().at(0), &one);
  auto bind = [&](int, int) { sched_setaffinity(0, sizeof one, &one); };
  std::atomic<int64_t> busy_ns{0};
  auto meet = [&](int t, int) {
    team.Barrier(t);
    const int64_t start_ns = ThreadCpuNs();
    for (int i = 0; i < 20'000; ++i) team.Barrier(t);
    busy_ns += ThreadCpuNs() - start_ns;
  };
  team.Run(bind);
  team.Run(meet);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_LT(busy_ns, int64_t{500'000'000}) << "CPU time of both; 800 ms when they spin";
}

TEST(ThreadTeam, TwoTeamsAtOnce) {
  std::thread other([] { Exchange(4, 500); });
  Exchange(4, 500);
  other.join();
}

TEST(ThreadTeam, StartsAndStopsIdle) {
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ThreadTeam::Create(1 + i % 4).Take()->size(), 1 + i % 4);
}

// Address space for a few stacks only (a limit of processes does not bind root): the error names the number, and the memory of
// the threads that had started is free again for a smaller team. In a child process: the limit stays.
void RunOutOfThreads() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (64u << 20);
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
  auto team = ThreadTeam::Create(1024);
  if (team.ok()) _exit(3);
  if (team.error().code() != Code::kLimit || team.error().message().find("1024") == std::string::npos) _exit(4);
  Exchange(2, 10);
  _exit(testing::Test::HasFailure() ? 5 : 0);
}
TEST(ThreadTeamDeathTest, TooManyThreadsIsALimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own";
#elif !defined(__x86_64__)
  GTEST_SKIP() << "an emulator does not keep to the address space limit";
#endif
  EXPECT_EXIT(RunOutOfThreads(), testing::ExitedWithCode(0), "");
}

TEST(Threads, DefaultCountIsWithinTheMachine) {
  EXPECT_GE(DefaultThreadCount(), 1);
  EXPECT_LE(DefaultThreadCount(), static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

static_assert(SplitRange(0, 8, 0, 3).begin == 0 && SplitRange(0, 8, 2, 3).end == 0);

TEST(Threads, SplitRangeCoversEachItemOnceInWholeGrains) {
  for (const int64_t n : {0, 1, 5, 16, 17, 100, 576, 49152, 1000003}) {
    for (const int64_t grain : {1, 4, 16, 32, 1000}) {
      for (const int threads : {1, 2, 3, 7, 64}) {
        int64_t at = 0, most = 0, least = n;
        for (int t = 0; t < threads; ++t) {
          const Range r = SplitRange(n, grain, t, threads);
          ASSERT_EQ(r.begin, at);
          ASSERT_LE(r.begin, r.end);
          ASSERT_TRUE(r.begin == n || r.begin % grain == 0);
          ASSERT_TRUE(r.end == n || r.end % grain == 0);
          at = r.end;
          most = std::max(most, r.end - r.begin);
          least = std::min(least, r.end - r.begin);
        }
        ASSERT_EQ(at, n);
        ASSERT_LE(most - least, 2 * grain - 1) << n << " " << grain << " " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace slm
