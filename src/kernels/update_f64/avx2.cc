// The f64 update in AVX2: tiles of 6 rows x 8 columns, twelve accumulators that cover the latency of the FMA.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/update_f64/contract.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 6;

template <int kM>
void RunTile(const UpdateF64Args& args, int row, int panel) {
  const double* a = args.a + row * args.a_stride;
  const double* b = args.b + int64_t{panel} * args.k * kUpdateColumns;
  __m256d acc[kM][2];
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i) acc[i][0] = acc[i][1] = _mm256_setzero_pd();
  for (int k = 0; k < args.k; ++k, b += kUpdateColumns) {
    const __m256d b0 = _mm256_loadu_pd(b), b1 = _mm256_loadu_pd(b + 4);
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i) {
      const __m256d v = _mm256_broadcast_sd(a + i * args.a_stride + k);
      acc[i][0] = _mm256_fmadd_pd(v, b0, acc[i][0]);
      acc[i][1] = _mm256_fmadd_pd(v, b1, acc[i][1]);
    }
  }
#pragma GCC unroll 6  // or the accumulators are kept in memory
  for (int i = 0; i < kM; ++i) {
    double* c = args.c + (row + i) * args.c_stride + panel * kUpdateColumns;
    _mm256_storeu_pd(c, _mm256_sub_pd(_mm256_loadu_pd(c), acc[i][0]));
    _mm256_storeu_pd(c + 4, _mm256_sub_pd(_mm256_loadu_pd(c + 4), acc[i][1]));
  }
}

void RunRows(const UpdateF64Args& args, int row, int n, int panel) {
  switch (n) {
    case 1: RunTile<1>(args, row, panel); break;
    case 2: RunTile<2>(args, row, panel); break;
    case 3: RunTile<3>(args, row, panel); break;
    case 4: RunTile<4>(args, row, panel); break;
    case 5: RunTile<5>(args, row, panel); break;
    default: RunTile<6>(args, row, panel); break;
  }
}

// A panel of B stays in the first cache for all rows.
void Update(const UpdateF64Args& args) {
  for (int p = 0; p < args.panels; ++p)
    for (int row = 0; row < args.m; row += kTile) RunRows(args, row, args.m - row < kTile ? args.m - row : kTile, p);
}

}  // namespace

extern const UpdateF64Kernel kUpdateF64Avx2;
const UpdateF64Kernel kUpdateF64Avx2 = {Update, "update_f64_avx2"};

}  // namespace slm::kernels
