// Any text as /proc/self/cgroup and /proc/self/mountinfo: few folders come out, and none that climbs out of its mount.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/cpu_limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\0');
  const std::string_view mounts = cut == std::string_view::npos ? text : text.substr(cut + 1);
  const auto groups = slm::CpuGroups(text.substr(0, cut), mounts);
  if (groups.size() > 1025) std::abort();
  for (const slm::ControlGroup& group : groups)
    if (group.folder.find("..") != std::string::npos && mounts.find("..") == std::string_view::npos) std::abort();
  return 0;
}
