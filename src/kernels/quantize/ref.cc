// Scalar law of activation quantization.
#include <cmath>
#include <limits>

#include "kernels/activation/math_ref.h"
#include "kernels/norm/squares_ref.h"
#include "kernels/packed/contract.h"
#include "kernels/quantize/contract.h"

namespace slm::kernels {
namespace {

// What scale * q leaves of x, as the row's next residual block.
void AddResidual(const float (&x)[kBlockK], float largest, int64_t block, const Q8Row& row) {
  const float scale = row.scale[block], inverse = 127.0f * 254 / largest;
  ResidualBlock& r = row.residual[(*row.residual_count)++];
  r.scale = scale / 254.0f;
  r.sum = 0;
  r.block = static_cast<int32_t>(block);
  for (int i = 0; i < kBlockK; ++i) {
    const float left = std::fma(-scale, static_cast<float>(row.q[block * kBlockK + i]), x[i]);
    r.q[i] = static_cast<int8_t>(std::nearbyint(left * inverse));
    r.sum += r.q[i];
  }
}

// One block of 32 values: the definition in contract.h, written out.
void QuantizeBlock(const float (&x)[kBlockK], int64_t block, const Q8Row& row) {
  float largest = 0;
  bool finite = true;
  for (float v : x) {
    finite = finite && std::isfinite(v);
    largest = std::fmax(largest, std::fabs(v));
  }
  const bool zero = !finite || largest < kTinyBlock;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  int32_t sum = 0, squares = 0;
  for (int i = 0; i < kBlockK; ++i) {
    const int q = zero ? 0 : static_cast<int>(std::nearbyint(x[i] * inverse));
    row.q[block * kBlockK + i] = static_cast<int8_t>(q);
    sum += q;
    squares += q * q;
  }
  row.scale[block] = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127.0f;
  row.sum[block] = sum;
  if (!zero && squares < kPeakedSquares) AddResidual(x, largest, block, row);
}

// Quantizes value(0) .. value(n - 1), zeros up to PaddedK(n).
template <class Value>
void QuantizeValues(int n, const Q8Row& row, Value value) {
  const int64_t n_blocks = PaddedK(n) / kBlockK;
  *row.residual_count = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    float x[kBlockK];
    for (int i = 0; i < kBlockK; ++i) {
      const int64_t j = b * kBlockK + i;
      x[i] = j < n ? value(j) : 0.0f;
    }
    QuantizeBlock(x, b, row);
  }
}

void QuantizeRow(const float* x, int n, Q8Row row) {
  QuantizeValues(n, row, [&](int64_t i) { return x[i]; });
}

void RmsNormQuantize(const float* x, const float* w, float eps, int n, float* y, Q8Row row) {
  const float r = InverseRms(x, eps, n);
  QuantizeValues(n, row, [&](int64_t i) {
    const float v = x[i] * r * w[i];
    if (y != nullptr) y[i] = v;
    return v;
  });
}

void GateQuantize(const float* gate, const float* up, int act, int n, Q8Row row) {
  QuantizeValues(n, row, [&](int64_t i) { return Act(gate[i], act) * up[i]; });
}

}  // namespace

extern const QuantizeKernels kQuantizeScalar;
const QuantizeKernels kQuantizeScalar = {QuantizeRow, RmsNormQuantize, GateQuantize, "quantize_s8_f32_scalar"};

}  // namespace slm::kernels
