// Values that tests and the scripts in tests/tiny derive from a seed, so that no input has to be stored. Test-only.
#pragma once
#include <cstdint>

namespace slm {

// The i-th number of a seed; tests/tiny/mix.py has the same.
inline uint32_t Mix(uint32_t seed, uint32_t i) {
  uint32_t x = i * 2654435761u + seed * 40503u + 1u;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  x ^= x >> 12;
  x *= 0x297a2d39u;
  return x ^ (x >> 15);
}

}  // namespace slm
