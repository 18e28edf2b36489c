// Plain open/read, because sysfs answers with errno values that iostreams would hide.
#include "telemetry/sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace slm::telemetry {
namespace {

// Bytes read (0 … size), or -errno.
ssize_t ReadInto(const char* path, char* buffer, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -errno;
  size_t total = 0;
  ssize_t result = 0;
  while (total < size) {
    const ssize_t n = read(fd, buffer + total, size - total);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) result = -errno;
    if (n <= 0) break;
    total += static_cast<size_t>(n);
  }
  close(fd);
  return result < 0 ? result : static_cast<ssize_t>(total);
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank{" \t\r\n\0", 5};
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool ParseNumber(std::string_view text, int64_t& value) {
  text = Trim(text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

constexpr size_t kNumberBytes = 64;

}  // namespace

std::string ReadLine(const std::string& path) {
  char buffer[4096];
  const ssize_t n = ReadInto(path.c_str(), buffer, sizeof buffer);
  if (n <= 0) return {};
  std::string_view text(buffer, static_cast<size_t>(n));
  return std::string(Trim(text.substr(0, text.find('\n'))));
}

std::optional<std::string> ReadSmallFile(const std::string& path) {
  std::string text(64 * 1024, '\0');
  const ssize_t n = ReadInto(path.c_str(), text.data(), text.size());
  if (n < 0) return std::nullopt;
  text.resize(static_cast<size_t>(n));
  return text;
}

SysfsValue ReadNumber(const std::string& path, int64_t low, int64_t high) {
  char buffer[kNumberBytes];
  const ssize_t n = ReadInto(path.c_str(), buffer, sizeof buffer);
  if (n == -EACCES || n == -EPERM) return {SensorStatus::kDenied, 0, "permission denied; readable by root, or after chmod a+r " + path};
  if (n < 0) return {SensorStatus::kUnreadable, 0, strerror(static_cast<int>(-n))};
  int64_t value = 0;
  if (!ParseNumber({buffer, static_cast<size_t>(n)}, value)) return {SensorStatus::kUnreadable, 0, "not a number"};
  if (value < low || value > high) return {SensorStatus::kUnreadable, value, "value " + std::to_string(value) + " is out of range"};
  return {SensorStatus::kReady, value, {}};
}

bool ReadNumberFast(const char* path, int64_t low, int64_t high, int64_t& value) {
  char buffer[kNumberBytes];
  const ssize_t n = ReadInto(path, buffer, sizeof buffer);
  return n > 0 && ParseNumber({buffer, static_cast<size_t>(n)}, value) && value >= low && value <= high;
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  DIR* folder = opendir(path.c_str());
  if (!folder) return names;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) { return strverscmp(a.c_str(), b.c_str()) < 0; });
  return names;
}

}  // namespace slm::telemetry
