// Which values of a key a rotary embedding turns together, and the way from one order to the other. Internal to backend/.
#pragma once
#include <algorithm>
#include <cstdint>

namespace slm::backend {

// RoFormer (arXiv 2104.09864) turns neighbours (2i, 2i + 1); Hugging Face's form of Llama turns (i, i + R / 2).
enum class RotaryPairs : uint8_t { kHalves, kNeighbours };

struct KeyOrder {
  RotaryPairs pairs = RotaryPairs::kHalves;
  int rotary_dim = 0;  // R: values that are turned, the first of a head; even
};

// One head [D], from `order` to halves and back; `from` and `to` are not the same memory.
inline void ToHalves(const KeyOrder& order, const float* from, int head_dim, float* to) {
  std::copy_n(from, head_dim, to);
  if (order.pairs == RotaryPairs::kHalves) return;
  const int half = order.rotary_dim / 2;
  for (int i = 0; i < half; ++i) to[i] = from[2 * i], to[i + half] = from[2 * i + 1];
}
inline void FromHalves(const KeyOrder& order, const float* from, int head_dim, float* to) {
  std::copy_n(from, head_dim, to);
  if (order.pairs == RotaryPairs::kHalves) return;
  const int half = order.rotary_dim / 2;
  for (int i = 0; i < half; ++i) to[2 * i] = from[i], to[2 * i + 1] = from[i + half];
}

}  // namespace slm::backend
