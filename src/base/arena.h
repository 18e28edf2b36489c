// Bump offsets inside one buffer: sizes are added up first (plan), memory is taken once (load).
#pragma once
#include <cstddef>

namespace slm {

inline constexpr size_t AlignUp(size_t n, size_t a) { return (n + a - 1) / a * a; }

// Adds up aligned sizes and hands out their offsets. Pure arithmetic.
class ArenaPlan {
 public:
  // Offset of `bytes` bytes aligned to 64.
  size_t Add(size_t bytes) {
    const size_t at = total_;
    total_ += AlignUp(bytes, 64);
    return at;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};

}  // namespace slm
