// Small reads from /sys and /proc, where a file may be absent, denied, empty or full of nonsense.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/telemetry.h"

namespace slm::telemetry {

struct SysfsValue {
  SensorStatus status = SensorStatus::kReady;  // kReady, kDenied or kUnreadable
  int64_t value = 0;
  std::string reason;  // empty when ready
};

// First line of `path` without surrounding blanks, at most 4 KiB; empty when it cannot be read.
std::string ReadLine(const std::string& path);
// The whole of a small file (at most 64 KiB), or nothing.
std::optional<std::string> ReadSmallFile(const std::string& path);
// A whole decimal number, nothing else, within [low, high].
SysfsValue ReadNumber(const std::string& path, int64_t low, int64_t high);
// The same without allocating: fills `value` and says whether it could.
bool ReadNumberFast(const char* path, int64_t low, int64_t high, int64_t& value);
// Names in a folder, sorted with numbers in numeric order (hwmon2 before hwmon10); empty when it cannot be read.
std::vector<std::string> ListFolder(const std::string& path);

}  // namespace slm::telemetry
