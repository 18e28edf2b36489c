// Process and system memory from /proc. The "VmRSS:   123 kB" lines are described in proc(5).
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "telemetry/sysfs.h"
#include "telemetry/telemetry.h"

namespace slm::telemetry {
namespace {

// Bytes of the line "<key>:  <n> kB"; nothing when it is missing or malformed.
std::optional<uint64_t> KilobyteLine(std::string_view text, std::string_view key) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    line.remove_prefix(key.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    uint64_t kib = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), kib);
    const std::string_view unit(rest, static_cast<size_t>(line.data() + line.size() - rest));
    if (error != std::errc() || unit != " kB" || kib > UINT64_MAX / 1024) return std::nullopt;
    return kib * 1024;
  }
  return std::nullopt;
}

// The smallest memory.max (cgroup v2) or memory.limit_in_bytes (v1) at the root of the cgroup view this process has.
std::optional<uint64_t> CgroupLimit(const std::string& sys) {
  for (const char* file : {"/fs/cgroup/memory.max", "/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const SysfsValue limit = ReadNumber(sys + file, 1, INT64_MAX);  // "max" is not a number: no limit
    if (limit.status == SensorStatus::kReady) return static_cast<uint64_t>(limit.value);
  }
  return std::nullopt;
}

}  // namespace

Result<ProcessMemory> ReadProcessMemory(const std::string& proc) {
  const std::string path = proc + "/self/status";
  const auto text = ReadSmallFile(path);
  if (!text) return Error(Code::kUnavailable, path + ": cannot be read", "memory figures need Linux's /proc");
  const auto rss = KilobyteLine(*text, "VmRSS"), peak = KilobyteLine(*text, "VmHWM");
  if (!rss || !peak) return Error(Code::kCorrupt, path + ": no readable VmRSS and VmHWM lines");
  return ProcessMemory{*rss, *peak};
}

Status ResetPeakRss(const std::string& proc) {
  const std::string path = proc + "/self/clear_refs";
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written = fd >= 0 && write(fd, "5", 1) == 1;
  if (fd >= 0) close(fd);
  if (!written)
    return Error(Code::kUnavailable, path + ": the peak cannot be reset here", "the peak since process start is reported instead");
  return Ok();
}

Result<SystemMemory> ReadSystemMemory(const std::string& proc, const std::string& sys) {
  const std::string path = proc + "/meminfo";
  const auto text = ReadSmallFile(path);
  if (!text) return Error(Code::kUnavailable, path + ": cannot be read", "memory figures need Linux's /proc");
  const auto total = KilobyteLine(*text, "MemTotal"), available = KilobyteLine(*text, "MemAvailable");
  if (!total || !available) return Error(Code::kCorrupt, path + ": no readable MemTotal and MemAvailable lines");
  SystemMemory memory{*total, *available, std::nullopt};
  if (const auto limit = CgroupLimit(sys); limit && *limit < *total) memory.cgroup_limit_bytes = limit;
  return memory;
}

}  // namespace slm::telemetry
