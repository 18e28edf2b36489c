// Element-wise kernels in NEON; the mathematics is in math_neon.h.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/activation/contract.h"
#include "kernels/activation/math_neon.h"

namespace slm::kernels {
namespace {

constexpr float kInf = __builtin_inff();

// y[i] = op(a[i], b[i])
template <class Op>
inline void Map(const float* a, const float* b, int64_t n, float* y, Op op) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) Store(y + i, op(Load(a + i), Load(b + i)));
  if (i < n) StoreTail(y + i, op(LoadTail(a + i, n - i), LoadTail(b + i, n - i)), n - i);
}

void Activate(const float* x, int act, int64_t n, float* y) {
  if (act == kActSilu) Map(x, x, n, y, [](F v, F) { return Silu(v); });
  else if (act == kActGeluTanh) Map(x, x, n, y, [](F v, F) { return GeluTanh(v); });
  else Map(x, x, n, y, [](F v, F) { return GeluErf(v); });
}

void Gate(const float* gate, const float* up, int act, int64_t n, float* y) {
  if (act == kActSilu) Map(gate, up, n, y, [](F g, F u) { return vmulq_f32(Silu(g), u); });
  else if (act == kActGeluTanh) Map(gate, up, n, y, [](F g, F u) { return vmulq_f32(GeluTanh(g), u); });
  else Map(gate, up, n, y, [](F g, F u) { return vmulq_f32(GeluErf(g), u); });
}

void Add(const float* a, const float* b, int64_t n, float* y) {
  Map(a, b, n, y, [](F u, F v) { return vaddq_f32(u, v); });
}
void Mul(const float* a, const float* b, int64_t n, float* y) {
  Map(a, b, n, y, [](F u, F v) { return vmulq_f32(u, v); });
}
void Scale(const float* a, float s, int64_t n, float* y) {
  const F vs = Set(s);
  Map(a, a, n, y, [vs](F v, F) { return vmulq_f32(v, vs); });
}
// v + (v - v) turns an infinity into NaN: tanh would hide it.
void Softcap(float* x, float cap, int64_t n) {
  const F vc = Set(cap);
  Map(x, x, n, x, [vc](F v, F) { return vmulq_f32(vc, Tanh(vdivq_f32(vaddq_f32(v, vsubq_f32(v, v)), vc))); });
}

// Largest value of x[0, n) and whether all of it is finite. Four chains, for the latency of FMAX.
struct Peak {
  float max;
  bool finite;
};
Peak BlockPeak(const float* x, int64_t n) {
  constexpr int kChains = 4;
  const F inf = Set(kInf);
  F top[kChains];
  uint32x4_t good[kChains];
  for (int j = 0; j < kChains; ++j) {
    top[j] = Set(-kInf);
    good[j] = vdupq_n_u32(~0u);
  }
  int64_t i = 0;
  for (; i + kChains * kWidth <= n; i += kChains * kWidth)
    for (int j = 0; j < kChains; ++j) {
      const F v = Load(x + i + j * kWidth);
      good[j] = vandq_u32(good[j], vcltq_f32(Abs(v), inf));
      top[j] = vmaxq_f32(top[j], v);
    }
  const uint32x4_t all = vandq_u32(vandq_u32(good[0], good[1]), vandq_u32(good[2], good[3]));
  Peak r = {vmaxvq_f32(vmaxq_f32(vmaxq_f32(top[0], top[1]), vmaxq_f32(top[2], top[3]))), vminvq_u32(all) != 0};
  for (; i < n; ++i) {
    r.finite = r.finite && x[i] - x[i] == 0;
    r.max = x[i] > r.max ? x[i] : r.max;
  }
  return r;
}

// One pass over memory: the block that first holds the largest value is searched again while it is still in the cache.
int64_t Argmax(const float* x, int64_t n, float* value) {
  constexpr int64_t kBlock = 1024;
  float max = -kInf;
  int64_t block = 0;
  for (int64_t b = 0; b < n; b += kBlock) {
    const Peak p = BlockPeak(x + b, n - b < kBlock ? n - b : kBlock);
    if (!p.finite) return -1;
    if (p.max > max) {
      max = p.max;
      block = b;
    }
  }
  if (n <= 0) return -1;
  while (x[block] != max) ++block;
  *value = x[block];
  return block;
}

}  // namespace

extern const ActivationKernels kActivationNeonDot;
const ActivationKernels kActivationNeonDot = {Activate, Gate, Add, Mul, Scale, Softcap, Argmax, "activation_neon_dotprod"};

}  // namespace slm::kernels
