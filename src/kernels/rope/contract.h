// Rotary position embedding of one token's heads in place (RoFormer, arXiv 2104.09864).
#pragma once
#include <stdint.h>

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

struct RopeArgs {
  float* x;  // [n_heads][head_dim] f32, rotated in place
  int n_heads, head_dim;
  int rotary_dim;    // even, <= head_dim; values past it stay
  bool interleaved;  // pairs (2i, 2i+1) instead of (i, i + rotary_dim / 2)
  const float* cos;  // [rotary_dim / 2] of this token's position
  const float* sin;
};
struct RopeKernels {
  void (*rope)(const RopeArgs& args);
  const char* name;
};
RopeKernels Rope(Isa isa);  // best tier <= isa; pure

}  // namespace slm::kernels
