// Element-wise kernels in AVX2; the mathematics is in math_avx2.h.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/activation/contract.h"
#include "kernels/activation/math_avx2.h"

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
  if (act == kActSilu) Map(gate, up, n, y, [](F g, F u) { return _mm256_mul_ps(Silu(g), u); });
  else if (act == kActGeluTanh) Map(gate, up, n, y, [](F g, F u) { return _mm256_mul_ps(GeluTanh(g), u); });
  else Map(gate, up, n, y, [](F g, F u) { return _mm256_mul_ps(GeluErf(g), u); });
}

void Add(const float* a, const float* b, int64_t n, float* y) {
  Map(a, b, n, y, [](F u, F v) { return _mm256_add_ps(u, v); });
}
void Mul(const float* a, const float* b, int64_t n, float* y) {
  Map(a, b, n, y, [](F u, F v) { return _mm256_mul_ps(u, v); });
}
void Scale(const float* a, float s, int64_t n, float* y) {
  const F vs = Set(s);
  Map(a, a, n, y, [vs](F v, F) { return _mm256_mul_ps(v, vs); });
}
// v + (v - v) turns an infinity into NaN: tanh would hide it.
void Softcap(float* x, float cap, int64_t n) {
  const F vc = Set(cap);
  Map(x, x, n, x, [vc](F v, F) { return _mm256_mul_ps(vc, Tanh(_mm256_div_ps(_mm256_add_ps(v, _mm256_sub_ps(v, v)), vc))); });
}

// Largest value of x[0, n) and whether all of it is finite.
struct Peak {
  float max;
  bool finite;
};
Peak BlockPeak(const float* x, int64_t n) {
  const F inf = Set(kInf);
  F top = Set(-kInf), bad = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F v = Load(x + i);
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(Abs(v), inf, _CMP_NLT_UQ));
    top = _mm256_max_ps(top, v);
  }
  Peak r = {-kInf, _mm256_movemask_ps(bad) == 0};
  float lane[8];
  Store(lane, top);
  for (int j = 0; j < 8; ++j) r.max = lane[j] > r.max ? lane[j] : r.max;
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

extern const ActivationKernels kActivationAvx2;
const ActivationKernels kActivationAvx2 = {Activate, Gate, Add, Mul, Scale, Softcap, Argmax, "activation_avx2"};

}  // namespace slm::kernels
