// How many cores this process may really keep busy: the affinity mask in physical cores, cut by the CPU quotas of its control groups.
//
// Why: a team larger than that waits for its own late threads, or is stopped by the quota for the rest of every period.
// Sources: proc_pid_mountinfo(5); kernel Documentation/admin-guide/cgroup-v2.rst (cpu.max), scheduler/sched-bwc.rst (v1).
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slm {

struct ControlGroup {
  enum class Version : unsigned char { kV1, kV2 } version = Version::kV2;
  std::string folder;  // absolute
};

// Every folder whose CPU quota binds a process: its own group and all groups above it as far as they are mounted here, innermost
// first. `cgroup`: the text of /proc/self/cgroup; `mounts`: of /proc/self/mountinfo. Nonsense lines are passed over. Pure.
std::vector<ControlGroup> CpuGroups(std::string_view cgroup, std::string_view mounts);

// CPUs that the tightest quota grants, e.g. 1.5; 0 when there is none. All files are read below `root` ("" is the machine).
double CpuQuota(const std::string& root);

// Physical cores behind the CPU numbers `allowed` (hardware threads of one core count once), at most the whole CPUs of the quota;
// at least 1. Files below `root`. Thread-safe.
int UsableCores(std::span<const int> allowed, const std::string& root);

// The numbers of the CPUs that the calling thread may run on; empty when the system does not say.
std::vector<int> AllowedCpus();

}  // namespace slm
