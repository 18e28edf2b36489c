// Monotonic time in nanoseconds since an unspecified start.
#pragma once
#include <chrono>
#include <cstdint>

namespace slm {
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace slm
