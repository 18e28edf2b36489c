// Arrays of heads, [B, H, T, D] or [B, T, H * D], seen one way; what the attention family shares.
#pragma once
#include "reference/array.h"

namespace slm::reference {

enum class Order : uint8_t { kHeadsFirst, kTokensFirst };  // [B, H, T, D], [B, T, H, D]

// A view: shape and where a value lies.
struct Heads {
  Order order = Order::kHeadsFirst;
  int64_t batch = 0, heads = 0, tokens = 0, width = 0;
  int64_t At(int64_t b, int64_t h, int64_t t, int64_t d) const {
    return order == Order::kHeadsFirst ? ((b * heads + h) * tokens + t) * width + d : ((b * tokens + t) * heads + h) * width + d;
  }
};

// Of an array of 4 dimensions, or of 3 with `n_heads` heads.
Result<Heads> HeadsOf(const Array& x, int64_t n_heads);

// Turns pairs of the first `rotated` values of each head. Angles: cos and sin at row(b, t), `rotated` / 2 values a row.
struct Rotation {
  const Array *cos = nullptr, *sin = nullptr;
  int64_t rotated = 0;
  bool interleaved = false;  // pairs (0, 1), (2, 3), …; else (0, n / 2), (1, n / 2 + 1), …
};
// `rows`: a row of the tables for each b * tokens + t, checked against them. Errors: kCorrupt.
Status Rotate(Array& x, const Heads& shape, const Rotation& r, const std::vector<int64_t>& rows);

}  // namespace slm::reference
