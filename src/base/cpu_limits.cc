#include "base/cpu_limits.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace slm {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20, kMaxPath = 4096;
constexpr size_t kMaxGroups = 1024;  // far more levels than a system has; text made to be long takes no memory

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (!file) return text;
  text.resize(kMaxFileBytes);
  file.read(text.data(), static_cast<std::streamsize>(kMaxFileBytes));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool HasWord(std::string_view list, std::string_view word) {
  const auto words = Split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The group's path as seen below a mount that shows `root` of its hierarchy; empty when the mount shows another part of it.
std::string BelowMount(std::string_view path, std::string_view root) {
  if (!path.starts_with('/') || path.size() > kMaxPath || path.find("..") != std::string_view::npos) return "";
  if (root == "/") return std::string(path);
  if (path.substr(0, root.size()) != root) return "";
  path.remove_prefix(root.size());
  return path.empty() || path.front() == '/' ? std::string(path) : "";
}

void AddFolderAndParents(const std::string& mount, std::string below, ControlGroup::Version version, std::vector<ControlGroup>& groups) {
  while (!below.empty() && below.back() == '/') below.pop_back();
  while (!below.empty() && groups.size() < kMaxGroups) {
    groups.push_back({version, mount + below});
    below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
  }
  groups.push_back({version, mount});
}

// CPUs of one group, 0 for no limit.
double QuotaOf(const ControlGroup& group, const std::string& root) {
  double quota = 0, period = 0;  // microseconds; "max" is no number and fails the read, -1 means none
  if (group.version == ControlGroup::Version::kV2) {
    std::ifstream file(root + group.folder + "/cpu.max");
    if (!(file >> quota >> period)) return 0;
  } else {
    std::ifstream quota_file(root + group.folder + "/cpu.cfs_quota_us"), period_file(root + group.folder + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

std::vector<ControlGroup> CpuGroups(std::string_view cgroup, std::string_view mounts) {
  std::string_view v1_path, v2_path;  // "hierarchy:controllers:path"; v2 is hierarchy 0 without controllers
  for (const std::string_view line : Split(cgroup, '\n')) {
    const size_t first = line.find(':'), second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) v2_path = path;
    else if (HasWord(controllers, "cpu")) v1_path = path;
  }
  std::vector<ControlGroup> groups;
  for (const std::string_view line : Split(mounts, '\n')) {  // "id parent major:minor root mount options … - type source super"
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = Split(line.substr(0, dash), ' '), right = Split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool v2 = right[0] == "cgroup2", v1 = right[0] == "cgroup" && HasWord(right[2], "cpu");
    const std::string_view path = v2 ? v2_path : v1_path;
    if ((!v2 && !v1) || path.empty() || left[4].size() > kMaxPath || groups.size() >= kMaxGroups) continue;
    AddFolderAndParents(std::string(left[4]), BelowMount(path, left[3]), v2 ? ControlGroup::Version::kV2 : ControlGroup::Version::kV1,
                        groups);
  }
  return groups;
}

double CpuQuota(const std::string& root) {
  double least = 0;
  for (const ControlGroup& group : CpuGroups(ReadText(root + "/proc/self/cgroup"), ReadText(root + "/proc/self/mountinfo"))) {
    const double quota = QuotaOf(group, root);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

int UsableCores(std::span<const int> allowed, const std::string& root) {
  std::set<std::string> cores;  // one entry a physical core: the list of its hardware threads
  for (const int cpu : allowed) {
    const std::string name = "cpu" + std::to_string(cpu);
    std::ifstream file(root + "/sys/devices/system/cpu/" + name + "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) && !siblings.empty() ? siblings : name);
  }
  const double quota = CpuQuota(root);
  const auto n = static_cast<double>(std::max<size_t>(1, cores.size()));
  return static_cast<int>(quota > 0 ? std::clamp(quota, 1.0, n) : n);
}

std::vector<int> AllowedCpus() {
  std::vector<int> allowed;
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {  // the call fails while the mask is smaller than the kernel's
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) return allowed;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < cpus; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set)) allowed.push_back(cpu);
    CPU_FREE(set);
    if (known) break;
  }
  return allowed;
}

}  // namespace slm
