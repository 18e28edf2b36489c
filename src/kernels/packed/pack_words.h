// What the packers share: the 32 codes of a row's block as eight words of four codes, which is how the layout stores a row.
#pragma once
#include <stdint.h>

#include <cstring>

#include "base/float16.h"
#include "kernels/packed/contract.h"

namespace slm::kernels {

// word[g]: codes 4 g ... 4 g + 3, the first in the lowest byte as it lies in memory.
struct CodeWords {
  uint32_t word[kBlockK / 4];
};

// `count` codes at q, the rest of the block filled with `fill`.
inline CodeWords LoadCodes(const void* q, int64_t count, int fill) {
  CodeWords w;
  if (count >= kBlockK) {
    std::memcpy(w.word, q, kBlockK);
    return w;
  }
  uint8_t codes[kBlockK];
  std::memset(codes, fill, sizeof codes);
  if (count > 0) std::memcpy(codes, q, static_cast<size_t>(count));
  std::memcpy(w.word, codes, kBlockK);
  return w;
}

inline void PutWord(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// Two groups of four codes in the nibbles of one word.
inline uint32_t Nibbles(uint32_t low, uint32_t high) { return (low & 0x0f0f0f0fu) | (high & 0x0f0f0f0fu) << 4; }

inline void PutHalf(uint8_t* p, float v) {
  const uint16_t h = FloatToHalf(v);
  p[0] = static_cast<uint8_t>(h & 0xff);
  p[1] = static_cast<uint8_t>(h >> 8);
}

}  // namespace slm::kernels
