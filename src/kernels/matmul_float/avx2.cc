// Float matmul for AVX2: tiles of 1 to 3 tokens x 32 rows, weights widened to f32 once per tile and K.
//
// Every accumulator takes its K in order with one fused multiply-add each, so results equal ref.cc bit for bit. Twelve accumulators
// in flight cover the latency of the FMA; M = 1 has 4 chains and is bound by memory.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/matmul_float/contract.h"
#include "kernels/packed/prefetch.h"

namespace slm::kernels {
namespace {

constexpr int kTile = 3;     // 12 accumulators + a weight and 3 activations = 16 registers
constexpr int kVectors = 4;  // of 8 rows

// Rows 8 g to 8 g + 7 of the line at p, as f32.
template <PackedKind kKind>
__m256 Weights(const uint8_t* p, int g) {
  if constexpr (kKind == PackedKind::kF32) {
    return _mm256_load_ps(reinterpret_cast<const float*>(p) + g * 8);
  } else {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + g);
    if constexpr (kKind == PackedKind::kF16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
}

template <int kM>
void Store(const MatMulArgs& args, int64_t row, int64_t token, const __m256 (&acc)[kM][kVectors]) {
  for (int i = 0; i < kM; ++i) {
    float* out = args.out + (token + i) * args.out_stride + row;
    for (int g = 0; g < kVectors; ++g) {
      __m256 v = acc[i][g];
      if (args.bias != nullptr) v = _mm256_add_ps(v, _mm256_loadu_ps(args.bias + row + g * 8));
      if (args.accumulate) v = _mm256_add_ps(_mm256_loadu_ps(out + g * 8), v);
      _mm256_storeu_ps(out + g * 8, v);
    }
  }
}

template <PackedKind kKind, int kM>
void RunTile(const MatMulArgs& args, int64_t panel, int64_t token) {
  constexpr int kLineBytes = kKind == PackedKind::kF32 ? 2 * kLine : kLine;
  const uint8_t* p = args.w + panel * args.panel_bytes;
  const float* x = args.x + token * args.x_stride;
  __m256 acc[kM][kVectors];
  for (int i = 0; i < kM; ++i)
    for (int g = 0; g < kVectors; ++g) acc[i][g] = _mm256_setzero_ps();
  for (int64_t k = 0; k < args.k; k += 4, p += 4 * kLineBytes) {
    for (int line = 0; line < 4 * kLineBytes; line += 2 * kLine) FetchAhead<kM>(p + line);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      __m256 v[kM];
#pragma GCC unroll 3
      for (int i = 0; i < kM; ++i) v[i] = _mm256_set1_ps(x[i * args.x_stride + k + j]);
#pragma GCC unroll 4
      for (int g = 0; g < kVectors; ++g) {
        const __m256 w = Weights<kKind>(p + j * kLineBytes, g);
#pragma GCC unroll 3
        for (int i = 0; i < kM; ++i) acc[i][g] = _mm256_fmadd_ps(v[i], w, acc[i][g]);
      }
    }
  }
  Store<kM>(args, panel * kPanelRows, token, acc);
}

template <PackedKind kKind>
void MatMul(const MatMulArgs& args) {
  for (int64_t p = args.panel_begin; p < args.panel_end; ++p)
    for (int done = 0; done < args.m;) {
      const int tile = TileTokens(args.m - done, kTile);
      switch (tile) {
        case 1: RunTile<kKind, 1>(args, p, done); break;
        case 2: RunTile<kKind, 2>(args, p, done); break;
        default: RunTile<kKind, 3>(args, p, done); break;
      }
      done += tile;
    }
}

}  // namespace

void MatMulF16Avx2(const MatMulArgs& args) { MatMul<PackedKind::kF16>(args); }
void MatMulBF16Avx2(const MatMulArgs& args) { MatMul<PackedKind::kBF16>(args); }
void MatMulF32Avx2(const MatMulArgs& args) { MatMul<PackedKind::kF32>(args); }

}  // namespace slm::kernels
