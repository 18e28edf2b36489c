// Element-wise pieces of the decoder on f32 vectors of n values. y may be an operand itself, but not overlap one otherwise.
#pragma once
#include <stdint.h>

namespace slm {
enum class Isa : unsigned char;
}

namespace slm::kernels {

enum ActivationId : int { kActSilu = 0, kActGeluTanh = 1, kActGeluErf = 2 };

struct ActivationKernels {
  void (*activate)(const float* x, int act, int64_t n, float* y);                  // y = act(x)
  void (*gate)(const float* gate, const float* up, int act, int64_t n, float* y);  // y = act(gate) * up
  void (*add)(const float* a, const float* b, int64_t n, float* y);                // y = a + b
  void (*mul)(const float* a, const float* b, int64_t n, float* y);                // y = a * b
  void (*scale)(const float* a, float s, int64_t n, float* y);                     // y = a * s
  void (*softcap)(float* x, float cap, int64_t n);                                 // x = cap * tanh(x / cap)
  // Index of the largest value (lowest index among equals) and the value; NaN or Inf anywhere gives index -1.
  int64_t (*argmax)(const float* x, int64_t n, float* value);
  const char* name;
};
ActivationKernels Activations(Isa isa);  // best tier <= isa; pure

}  // namespace slm::kernels
