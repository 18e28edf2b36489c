// Memory figures on made-up /proc files, and against the kernel's own numbers for this process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>

#include "telemetry/fake_tree_for_test.h"
#include "telemetry/telemetry.h"

namespace slm::telemetry {
namespace {

TEST(Memory, ReadsStatusLines) {
  FakeTree tree;
  tree.Write("self/status", "Name:\tslm\nVmPeak:\t  999 kB\nVmHWM:\t    200 kB\nVmRSS:\t    120 kB\n");
  const auto memory = ReadProcessMemory(tree.root());
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().rss_bytes, 120u * 1024);
  EXPECT_EQ(memory.value().peak_rss_bytes, 200u * 1024);
}

TEST(Memory, GarbageAndAbsenceAreErrors) {
  FakeTree tree;
  EXPECT_EQ(ReadProcessMemory(tree.root()).error().code(), Code::kUnavailable);
  for (const char* text :
       {"", "VmRSS: x kB\nVmHWM: 1 kB\n", "VmRSS: 1 MB\nVmHWM: 1 kB\n", "VmRSS: 99999999999999999999 kB\nVmHWM: 1 kB\n"}) {
    tree.Write("self/status", text);
    EXPECT_EQ(ReadProcessMemory(tree.root()).error().code(), Code::kCorrupt) << text;
  }
}

TEST(Memory, AgreesWithTheKernel) {
  const auto memory = ReadProcessMemory();
  ASSERT_TRUE(memory.ok());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_NEAR(static_cast<double>(memory.value().peak_rss_bytes), static_cast<double>(usage.ru_maxrss) * 1024, 8e6);
  EXPECT_LE(memory.value().rss_bytes, memory.value().peak_rss_bytes);
}

TEST(Memory, PeakCanBeReset) {
  constexpr size_t kBytes = 64u << 20;
  void* block = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  munmap(block, kBytes);
  const uint64_t before = ReadProcessMemory().value().peak_rss_bytes;
  if (!ResetPeakRss().ok()) GTEST_SKIP() << "clear_refs is not offered here";
  EXPECT_LT(ReadProcessMemory().value().peak_rss_bytes + kBytes / 2, before);
  EXPECT_EQ(ResetPeakRss("/does/not/exist").error().code(), Code::kUnavailable);
}

TEST(Memory, SystemMemoryAndItsCgroupLimit) {
  FakeTree tree;
  tree.Write("meminfo", "MemTotal:       16000 kB\nMemFree:        1 kB\nMemAvailable:    8000 kB\n");
  auto memory = ReadSystemMemory(tree.root(), tree.root());
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().total_bytes, 16000u * 1024);
  EXPECT_EQ(memory.value().available_bytes, 8000u * 1024);
  EXPECT_FALSE(memory.value().cgroup_limit_bytes);
  tree.Write("fs/cgroup/memory.max", "max\n");
  EXPECT_FALSE(ReadSystemMemory(tree.root(), tree.root()).value().cgroup_limit_bytes);
  tree.Write("fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(ReadSystemMemory(tree.root(), tree.root()).value().cgroup_limit_bytes, 1048576u);
  tree.Write("fs/cgroup/memory.max", "9223372036854771712\n");  // cgroup v1's "none"
  EXPECT_FALSE(ReadSystemMemory(tree.root(), tree.root()).value().cgroup_limit_bytes);
}

}  // namespace
}  // namespace slm::telemetry
