// Activation quantization for NEON: 32 values are eight vectors; sources (plain, normed, gated) differ only in how they load.
// SDOT adds up the codes and their squares.
#include <arm_neon.h>
#include <stdint.h>

#include "kernels/activation/math_neon.h"
#include "kernels/norm/squares_neon.h"
#include "kernels/packed/contract.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {
namespace {

constexpr int kVectors = kBlockK / kWidth;

struct Plain {
  const float* x;
  F At(int64_t i) const { return Load(x + i); }
};
struct Normed {
  const float *x, *w;
  float* y;
  F r;
  F At(int64_t i) const {
    const F v = vmulq_f32(vmulq_f32(Load(x + i), r), Load(w + i));
    if (y != nullptr) Store(y + i, v);
    return v;
  }
};
template <int kAct>
struct Gated {
  const float *gate, *up;
  F At(int64_t i) const {
    const F x = Load(gate + i);
    return vmulq_f32(kAct == 0 ? Silu(x) : kAct == 1 ? GeluTanh(x) : GeluErf(x), Load(up + i));
  }
};

// 32 codes in order and their sum and sum of squares. |x * factor| < 128, rounded to the nearest even.
struct Codes {
  int8x16_t q[2];
  int32_t sum, squares;
};
Codes Round(const F (&x)[kVectors], float factor) {
  Codes c;
  for (int h = 0; h < 2; ++h) {
    int32x4_t v[4];
    for (int i = 0; i < 4; ++i) v[i] = vcvtnq_s32_f32(vmulq_n_f32(x[h * 4 + i], factor));
    const int16x8_t a = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1])), b = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    c.q[h] = vcombine_s8(vmovn_s16(a), vmovn_s16(b));
  }
  const int8x16_t ones = vdupq_n_s8(1);
  c.sum = vaddvq_s32(vdotq_s32(vdotq_s32(vdupq_n_s32(0), c.q[0], ones), c.q[1], ones));
  c.squares = vaddvq_s32(vdotq_s32(vdotq_s32(vdupq_n_s32(0), c.q[0], c.q[0]), c.q[1], c.q[1]));
  return c;
}

void StoreCodes(int8_t* to, const Codes& c) {
  vst1q_s8(to, c.q[0]);
  vst1q_s8(to + 16, c.q[1]);
}

// What scale * q leaves of x, as the row's next residual block.
[[gnu::noinline]] void AddResidual(const F (&x)[kVectors], float largest, const Codes& codes, int64_t block, const Q8Row& row) {
  const float scale = row.scale[block];
  F left[kVectors];
  for (int i = 0; i < kVectors; i += 2) {
    const int8x16_t half = codes.q[i / 4];
    const int16x8_t q = vmovl_s8(i % 4 == 0 ? vget_low_s8(half) : vget_high_s8(half));
    left[i] = vfmsq_n_f32(x[i], vcvtq_f32_s32(vmovl_s16(vget_low_s16(q))), scale);
    left[i + 1] = vfmsq_n_f32(x[i + 1], vcvtq_f32_s32(vmovl_s16(vget_high_s16(q))), scale);
  }
  const Codes rest = Round(left, 127.0f * 254 / largest);
  ResidualBlock& r = row.residual[(*row.residual_count)++];
  StoreCodes(r.q, rest);
  r.scale = scale / 254.0f;
  r.sum = rest.sum;
  r.block = static_cast<int32_t>(block);
}

// FMAX hands NaN on, so the largest |x| is a finite number only when all of them are.
void QuantizeBlock(const F (&x)[kVectors], int64_t block, const Q8Row& row) {
  F top = Abs(x[0]);
  for (int i = 1; i < kVectors; ++i) top = vmaxq_f32(top, Abs(x[i]));
  const float largest = vmaxvq_f32(top);
  const bool finite = largest < __builtin_inff();
  if (!finite || largest < kTinyBlock) {
    StoreCodes(row.q + block * kBlockK, {{vdupq_n_s8(0), vdupq_n_s8(0)}, 0, 0});
    row.scale[block] = finite ? 0.0f : __builtin_nanf("");
    row.sum[block] = 0;
    return;
  }
  const Codes codes = Round(x, 127.0f / largest);
  StoreCodes(row.q + block * kBlockK, codes);
  row.scale[block] = largest / 127.0f;
  row.sum[block] = codes.sum;
  if (codes.squares < kPeakedSquares) AddResidual(x, largest, codes, block, row);
}

template <class Source>
void QuantizeBlocks(const Source& source, int64_t n_blocks, int64_t first, const Q8Row& row) {
  for (int64_t b = 0; b < n_blocks; ++b) {
    F x[kVectors];
    for (int i = 0; i < kVectors; ++i) x[i] = source.At(b * kBlockK + i * kWidth);
    QuantizeBlock(x, first + b, row);
  }
}

// The last n % 32 values of a vector, followed by zeros, so that blocks are always whole.
struct Tail {
  float v[kBlockK];
  Tail(const float* x, int n) {
    for (int i = 0; i < kBlockK; ++i) v[i] = i < n % kBlockK ? x[n / kBlockK * kBlockK + i] : 0.0f;
  }
};

// Blocks after the whole ones: `tail` (when n is no multiple of 32) and zeros up to PaddedK(n).
template <class Source>
void Finish(const Source& tail, int n, const Q8Row& row) {
  const int64_t whole = n / kBlockK, n_blocks = PaddedK(n) / kBlockK;
  if (n % kBlockK != 0) QuantizeBlocks(tail, 1, whole, row);
  F zeros[kVectors];
  for (F& z : zeros) z = Set(0);
  for (int64_t b = (n + kBlockK - 1) / kBlockK; b < n_blocks; ++b) QuantizeBlock(zeros, b, row);
}

void QuantizeRow(const float* x, int n, Q8Row row) {
  *row.residual_count = 0;
  QuantizeBlocks(Plain{x}, n / kBlockK, 0, row);
  Finish(Plain{Tail(x, n).v}, n, row);
}

void RmsNormQuantize(const float* x, const float* w, float eps, int n, float* y, Q8Row row) {
  const Tail x_tail(x, n), w_tail(w, n);
  SumOfSquares squares;
  for (int i = 0; i < n / kBlockK * kBlockK; i += kBlockK)
    for (int j = 0; j < kVectors; ++j) squares.Add(j, Load(x + i + j * kWidth));
  for (int j = 0; j < kVectors; ++j) squares.Add(j, Load(x_tail.v + j * kWidth));
  const F r = Set(squares.InverseRms(eps, n));
  *row.residual_count = 0;
  QuantizeBlocks(Normed{x, w, y, r}, n / kBlockK, 0, row);
  float last[kBlockK];
  Finish(Normed{x_tail.v, w_tail.v, last, r}, n, row);
  if (y != nullptr)
    for (int i = 0; i < n % kBlockK; ++i) y[n / kBlockK * kBlockK + i] = last[i];
}

template <int kAct>
void Gate(const float* gate, const float* up, int n, const Q8Row& row) {
  *row.residual_count = 0;
  QuantizeBlocks(Gated<kAct>{gate, up}, n / kBlockK, 0, row);
  Finish(Gated<kAct>{Tail(gate, n).v, Tail(up, n).v}, n, row);
}

void GateQuantize(const float* gate, const float* up, int act, int n, Q8Row row) {
  if (act == 0) return Gate<0>(gate, up, n, row);
  if (act == 1) return Gate<1>(gate, up, n, row);
  Gate<2>(gate, up, n, row);
}

}  // namespace

extern const QuantizeKernels kQuantizeNeonDot;
const QuantizeKernels kQuantizeNeonDot = {QuantizeRow, RmsNormQuantize, GateQuantize, "quantize_s8_f32_neon_dotprod"};

}  // namespace slm::kernels
