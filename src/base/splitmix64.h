// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): numbers without a pattern from a seed, the
// same with every standard library, which distributions of <random> are not.
#pragma once
#include <cstdint>

namespace slm {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

}  // namespace slm
