// RMSNorm in NEON: one pass for the sum of squares, one that scales.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/norm/contract.h"
#include "kernels/norm/squares_neon.h"

namespace slm::kernels {
namespace {

using F = float32x4_t;
constexpr int kWidth = 4, kVectors = 8;  // of a block of 32, the period of SumOfSquares
inline F Load(const float* p) { return vld1q_f32(p); }
inline void Store(float* p, F v) { vst1q_f32(p, v); }
// n < 4 values; the rest reads as zero.
inline F LoadTail(const float* p, int n) {
  float lane[kWidth] = {};
  for (int i = 0; i < n; ++i) lane[i] = p[i];
  return Load(lane);
}

void ScaleRow(const float* x, const float* w, float r, int n, float* y) {
  int i = 0;
  const F vr = vdupq_n_f32(r);
  for (; i + kWidth <= n; i += kWidth) Store(y + i, vmulq_f32(vmulq_f32(Load(x + i), vr), Load(w + i)));
  for (; i < n; ++i) y[i] = x[i] * r * w[i];
}

void RmsNorm(const float* x, const float* w, float eps, int n, float* y) {
  SumOfSquares squares;
  int i = 0;
  for (; i + kVectors * kWidth <= n; i += kVectors * kWidth)
    for (int j = 0; j < kVectors; ++j) squares.Add(j, Load(x + i + j * kWidth));
  for (int j = 0; i < n; ++j, i += kWidth) squares.Add(j, n - i >= kWidth ? Load(x + i) : LoadTail(x + i, n - i));
  ScaleRow(x, w, squares.InverseRms(eps, n), n, y);
}

void AddRmsNorm(float* x, const float* d, const float* w, float eps, int n, float* y) {
  SumOfSquares squares;
  int i = 0;
  for (; i + kVectors * kWidth <= n; i += kVectors * kWidth)
    for (int j = 0; j < kVectors; ++j) {
      const F v = vaddq_f32(Load(x + i + j * kWidth), Load(d + i + j * kWidth));
      Store(x + i + j * kWidth, v);
      squares.Add(j, v);
    }
  int j = 0;
  for (; i + kWidth <= n; ++j, i += kWidth) {
    const F v = vaddq_f32(Load(x + i), Load(d + i));
    Store(x + i, v);
    squares.Add(j, v);
  }
  if (i < n) {
    for (int k = i; k < n; ++k) x[k] += d[k];
    squares.Add(j, LoadTail(x + i, n - i));
  }
  ScaleRow(x, w, squares.InverseRms(eps, n), n, y);
}

}  // namespace

extern const NormKernels kNormNeonDot;
const NormKernels kNormNeonDot = {RmsNorm, AddRmsNorm, "norm_neon_dotprod"};

}  // namespace slm::kernels
