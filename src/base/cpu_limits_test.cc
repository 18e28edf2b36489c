// Cores on made-up machines: SMT siblings, affinity, quotas of both versions of control groups, nested and seen from a container.
#include "base/cpu_limits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/threads.h"

namespace slm {
namespace {

class Machine : public testing::Test {
 protected:
  Machine() {
    char name[] = "/tmp/slm_cpus_XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Machine() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Cpu(int cpu, const std::string& siblings) const {
    Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", siblings + "\n");
  }
  void EightThreadsOnFourCores() const {
    for (int cpu = 0; cpu < 8; ++cpu) Cpu(cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  }
  void V2(const std::string& path, const std::string& mount_root = "/") const {
    Write("/proc/self/cgroup", "0::" + path + "\n");
    Write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n35 24 0:30 " + mount_root +
                                      " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  int Cores(std::vector<int> allowed) const { return UsableCores(allowed, root_); }
  std::string root_;
};
const std::vector<int> kEight{0, 1, 2, 3, 4, 5, 6, 7};

TEST_F(Machine, HardwareThreadsOfACoreCountOnce) {
  EightThreadsOnFourCores();
  EXPECT_EQ(Cores(kEight), 4);
  EXPECT_EQ(Cores({0, 4}), 1);
  EXPECT_EQ(Cores({0, 1, 4}), 2);
}

TEST_F(Machine, NothingKnown) {
  EXPECT_EQ(Cores(kEight), 8) << "no topology: every CPU is a core";
  EXPECT_EQ(Cores({}), 1);
  EXPECT_EQ(CpuQuota(root_), 0);
}

TEST_F(Machine, QuotaOfVersion2) {
  EightThreadsOnFourCores();
  V2("/user.slice/a.scope");
  Write("/sys/fs/cgroup/user.slice/a.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores(kEight), 4);
  Write("/sys/fs/cgroup/user.slice/a.scope/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(CpuQuota(root_), 2.5);
  EXPECT_EQ(Cores(kEight), 2) << "a third thread would be stopped half of every period";
  Write("/sys/fs/cgroup/user.slice/a.scope/cpu.max", "50000 100000\n");
  EXPECT_EQ(Cores(kEight), 1);
  Write("/sys/fs/cgroup/user.slice/a.scope/cpu.max", "9000000 100000\n");
  EXPECT_EQ(Cores(kEight), 4);
}

TEST_F(Machine, TheParentGroupsQuotaBindsToo) {
  EightThreadsOnFourCores();
  V2("/pod/container");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "300000 100000\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "100000 50000\n");
  EXPECT_EQ(Cores(kEight), 2);
}

// In a container the mount shows the container's own group as its root, while /proc/self/cgroup may name the path on the host.
TEST_F(Machine, ContainerSeesItsGroupAsTheRoot) {
  EightThreadsOnFourCores();
  V2("/docker/abc", "/docker/abc");
  Write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Cores(kEight), 2);
  V2("/");  // with a name space of control groups
  EXPECT_EQ(Cores(kEight), 2);
  V2("/../elsewhere");  // moved out of the name space: the mount is all that can be read
  EXPECT_EQ(Cores(kEight), 2);
  V2("/docker/abc", "/docker/ab");  // another group whose name only begins alike
  Write("/sys/fs/cgroup/c/cpu.max", "100000 100000\n");
  EXPECT_EQ(Cores(kEight), 2);
}

TEST_F(Machine, QuotaOfVersion1) {
  EightThreadsOnFourCores();
  Write("/proc/self/cgroup", "9:name=systemd:/\n3:cpuset:/job\n2:cpu,cpuacct:/job\n0::/\n");
  Write("/proc/self/mountinfo",
        "31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cores(kEight), 4);
  Write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(Cores(kEight), 3);
  Write("/sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us", "100000\n");  // not the controller that counts
  EXPECT_EQ(Cores(kEight), 3);
}

TEST_F(Machine, NonsenseIsPassedOver) {
  EightThreadsOnFourCores();
  V2("/a");
  for (const char* text : {"", "x y", "-5 100000", "100000", "100000 0", "1e400 1", "nan nan"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(Cores(kEight), 4) << text;
  }
  Write("/proc/self/cgroup", "::::\n\n0\n:\n2:cpu");
  Write("/proc/self/mountinfo", " - cgroup2\n - cgroup2 x y\na b c d e - cgroup");
  EXPECT_EQ(Cores(kEight), 4);
}

TEST(CpuGroups, APathThatDoesNotBeginAtTheRootIsPassedOver) {
  const auto groups = CpuGroups("0::.other", "24 0 0:30 / /sys/fs/. rw - cgroup2 cgroup2 rw");
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].folder, "/sys/fs/.") << "glued to its mount it would name a folder outside";
}

TEST(AllowedCpus, ThisMachine) {
  const std::vector<int> allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  EXPECT_GE(DefaultThreadCount(), 1);
  EXPECT_LE(DefaultThreadCount(), static_cast<int>(allowed.size()));
}

}  // namespace
}  // namespace slm
